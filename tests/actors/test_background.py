"""Work behind everything else is told when it breaks off, and goes on."""

import asyncio
from typing import Any

import pytest

from kelpie.actors import background as module
from kelpie.actors.background import run_forever


async def test_work_that_breaks_off_is_told_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    begun, goes_on = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise KeyError("a bug")
        goes_on.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_forever(work, "the sweeping"))
    async with asyncio.timeout(10):
        await goes_on.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert begun == 3
    assert [(type(each["exception"]), "the sweeping" in each["message"]) for each in told] == [(KeyError, True)] * 2
