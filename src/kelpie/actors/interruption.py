"""A block that can be interrupted from outside without ending the task it runs in.

It is like `asyncio.timeout`, with a call instead of a clock: an interruptible block needs no task of its own, and a
task costs more than everything else in a short wait.
"""

import asyncio
from types import TracebackType


class Interruption:
    """Use it as `with Interruption() as block`; the block ends quietly when `block.interrupt` was called."""

    __slots__ = ("_before", "_open", "_task", "interrupted")

    def __init__(self) -> None:
        self.interrupted = False
        self._open = False

    def __enter__(self) -> "Interruption":
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before, self._open = task, task.cancelling(), True
        return self

    def interrupt(self, *_: object) -> None:
        """Interrupts the block at its await, if it is still running; to be called from another task or a callback."""
        if self._open and not self.interrupted:
            self.interrupted = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._open = False
        # The task may have been cancelled as well (a server that stops): that cancellation goes on unchanged.
        return self.interrupted and self._task.uncancel() <= self._before and kind is asyncio.CancelledError
