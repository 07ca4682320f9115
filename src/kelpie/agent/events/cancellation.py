"""Request to cancel a turn.

The request only sets a flag; the turn ends itself, with its own last commit, so there is never a second writer. What
the turn waits for outside the database (a model, a tool) is interrupted at once; a commit is never interrupted.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.errors import KelpieError


class Cancelled(KelpieError):
    """The turn was asked to end."""


class Cancellation:
    """Cancellation of one turn. It must be requested from another task than the turn's own."""

    __slots__ = ("_asks", "_task", "has_begun", "requested")

    def __init__(self) -> None:
        self.requested = False
        self.has_begun = False
        self._task: asyncio.Task[object] | None = None
        self._asks = False

    def request(self, *, spare_tools: bool = False) -> None:
        """Interrupts what the turn is waiting for, if that may be interrupted; a second request changes nothing.

        Tools that are spared run to their end and their results are committed; the turn ends after them.
        """
        self.requested = True
        if self._task is not None and (self._asks or not spare_tools):
            self._task.cancel()
            self._task = None

    def begin(self) -> None:
        """Called first by a turn. Raises Cancelled when it must not begin."""
        self.check()
        self.has_begun = True

    def check(self) -> None:
        """Called before something new begins. Raises Cancelled."""
        if self.requested:
            raise Cancelled

    @contextmanager
    def abortable(self, *, asks: bool = False) -> Generator[None]:
        """A block that calls a model (`asks`) or tools and may be interrupted at any await.

        Raises Cancelled when it was, or would be at once.
        """
        self.check()
        self._task, self._asks = asyncio.current_task(), asks
        task = self._task
        assert task is not None
        before = task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            # The task may have been cancelled for another reason as well (a server that stops): that is raised on.
            if self.requested and task.uncancel() <= before:
                raise Cancelled from None
            raise
        finally:
            self._task = None
