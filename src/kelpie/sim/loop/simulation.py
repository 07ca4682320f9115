"""One run: a loop, a main coroutine, an outcome, and a clean process afterwards.

The cyclic collector is off during a run, because the moment at which it finalises something is not under control.
Leftovers of dead nodes are closed only after the trace is finished, so nothing that their `finally` blocks do can be
seen.
"""

import gc
import sys
import warnings
from collections.abc import Callable, Coroutine
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Generic, TypeVar

from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import outside

T = TypeVar("T")

CLOSE_ATTEMPTS_MAX = 50
_leaked: list[object] = []  # coroutines that refuse to end; letting them go would only make noise
_frozen = False


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """Outcome of a run: a result, or the error that the main coroutine or the loop raised."""

    result: T | None
    error: BaseException | None
    trace_hash: str
    events: int
    virtual_s: float

    def get(self) -> T:
        """The result. Raises the error of the run."""
        if self.error is not None:
            raise self.error
        return self.result  # pyright: ignore[reportReturnType]


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], loop: SimLoop | None = None) -> Outcome[T]:
    """Runs main to its end on a loop (of seed 0 unless given) and disposes of everything it started."""
    loop = loop or SimLoop()
    _freeze()
    collecting = gc.isenabled()
    gc.disable()
    result: T | None = None
    error: BaseException | None = None
    try:
        result = loop.run_until_complete(loop.create_task(main(loop), name="main", context=outside()))
    except Exception as raised:  # noqa: BLE001 - handed to the caller in the outcome
        error = raised
    finally:
        digest, events = loop.trace.digest(), loop.trace.events
        _dispose(loop)
        if collecting:
            gc.enable()
    return Outcome(result, error, digest, events, loop.time())


def _freeze() -> None:
    """Takes the existing objects of the process out of every later collection, which makes collections quick: the one
    after a run looks through what that run made, and not through what earlier runs imported."""
    global _frozen
    if not _frozen:
        gc.collect()
        _frozen = True
    gc.freeze()


def _dispose(loop: SimLoop) -> None:
    """Ends the remaining tasks silently."""
    loop.close()
    hook, sys.unraisablehook = sys.unraisablehook, _hush
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            for task in loop.held():
                _close(task.get_coro())
            loop.release()
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _close(coro: Any) -> None:
    for _ in range(CLOSE_ATTEMPTS_MAX):
        try:
            coro.close()
        except BaseException:  # noqa: BLE001 - the world it complains about is gone
            continue
        return
    _leaked.append(coro)


def _hush(_unraisable: object) -> None:
    return
