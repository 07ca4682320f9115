"""The future of a submitted job's result.

It counts its listeners, so that a failure without a listener is logged at the moment it happens instead of being found
by the garbage collector. Cancelling a reply only removes the listener: the job goes on.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

from kelpie.observe import logs

T = TypeVar("T")
log = logs.get("actors")


class Reply(asyncio.Future[T]):
    """Await it for the job's result; shield it when more than one task does."""

    __slots__ = ("_listeners", "_number")

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._number = number
        self._listeners = 0
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number  # an address would make the order in asyncio's sets differ from run to run

    def add_done_callback(self, fn: Callable[..., object], /, *, context: Context | None = None) -> None:
        self._listeners += 1
        super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[..., object], /) -> int:
        removed = super().remove_done_callback(fn)
        self._listeners -= removed
        return removed

    def succeed(self, result: Any) -> None:
        """Gives the result to the listeners."""
        if not self.done():
            self.set_result(result)

    def fail(self, error: BaseException, whose: str) -> None:
        """Gives the error to the listeners, else to the log."""
        heard = self._listeners > 0 and not self.done()
        if not self.done():
            self.set_exception(error)
            self.exception()  # marks it as seen: from here on it is either delivered or logged below
        if not heard:
            log.error(
                "unawaited_job_failed",
                "Job failed and no caller was waiting for its result",
                key=whose,
                error=str(error),
                exc_info=error,
            )
