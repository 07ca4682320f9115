"""Guards the private parts of asyncio that SimLoop stands on; a new Python that changes them fails here first."""

import asyncio
import importlib
import inspect
from asyncio import base_events, events
from contextvars import copy_context

import pytest

from kelpie.sim.faults import Faults
from kelpie.sim.loop.errors import NotSimulated
from kelpie.sim.loop.loop import SimLoop, running
from kelpie.sim.loop.tasks import SimTask
from tests.parts import lacks


def test_run_forever_still_calls_run_once_and_looks_at_stopping() -> None:
    source = inspect.getsource(base_events.BaseEventLoop)
    assert "self._run_once()" in source and "if self._stopping:" in source


def test_a_loop_still_has_the_private_names_we_use() -> None:
    loop = SimLoop()
    assert callable(base_events.BaseEventLoop._check_closed)  # type: ignore[attr-defined]
    assert loop._stopping is False
    assert loop._thread_id is None
    for hook in ("_asyncgen_firstiter_hook", "_asyncgen_finalizer_hook", "_timer_handle_cancelled"):
        assert callable(getattr(base_events.BaseEventLoop, hook))
    loop.close()


def test_a_handle_still_has_the_private_names_we_use() -> None:
    loop = SimLoop()
    handle = events.TimerHandle(1.0, print, (), loop, copy_context())
    assert handle._cancelled is False and handle._scheduled is False
    assert handle._context is not None and callable(handle._run)
    assert "_timer_handle_cancelled" in inspect.getsource(events.TimerHandle.cancel)
    loop.close()


def test_a_callback_of_a_task_still_leads_to_its_task() -> None:
    loop = SimLoop()
    labels: list[str] = []
    ran = loop.trace.ran
    loop.trace.ran = lambda label, now: (labels.append(label), ran(label, now))[0]  # type: ignore[method-assign]

    async def main() -> None:
        await asyncio.sleep(1)

    task = loop.create_task(main(), name="canary")
    assert isinstance(task, SimTask)
    loop.run_until_complete(task)
    loop.close()
    assert labels.count(task.label) == 2, "the first step and the wake-up are both known by the task's label"


def test_a_simulated_adapter_refuses_every_other_loop() -> None:
    async def main() -> None:
        running()

    with pytest.raises(NotSimulated, match="SimLoop only"):
        asyncio.run(main())


def test_uvloop_is_refused() -> None:
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError as error:
        lacks("uvloop", str(error))

    async def main() -> None:
        running()

    with pytest.raises(NotSimulated, match="uvloop"), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_faults_need_a_simulated_loop_only() -> None:
    loop = SimLoop()
    assert Faults(loop).firings == []
    loop.close()
