"""The wish that a turn ends, and how the turn hears of it.

Whoever wishes it only says so; the turn ends itself, with its own last commit, so there is never a second writer. What
the turn waits for outside the database (a model, a tool) is broken off at once; a commit is never broken off.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from kelpie.core.errors import KelpieError


class Cancelled(KelpieError):
    """Somebody asked for this turn to end."""


class Cancellation:
    """Of one turn. It must be wished for from another task than the turn's own."""

    __slots__ = ("_asks", "_task", "has_begun", "wished")

    def __init__(self) -> None:
        self.wished = False
        self.has_begun = False
        self._task: asyncio.Task[object] | None = None
        self._asks = False

    def wish(self, *, spare_tools: bool = False) -> None:
        """Breaks off what the turn is waiting for, if that may be broken off; asking twice changes nothing.

        Tools that are spared get to their end, and so do their results; the turn ends after them.
        """
        self.wished = True
        if self._task is not None and (self._asks or not spare_tools):
            self._task.cancel()
            self._task = None

    def begin(self) -> None:
        """The first thing a turn does. Raises Cancelled when it must not begin: then nobody expects anything of it."""
        self.check()
        self.has_begun = True

    def check(self) -> None:
        """Before something new is begun. Raises Cancelled."""
        if self.wished:
            raise Cancelled

    @contextmanager
    def abortable(self, *, asks: bool = False) -> Generator[None]:
        """What runs inside, a model or tools, may be broken off at any await; `asks` when it is a model.

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
            # Somebody else may have cancelled the task as well (a server that stops): that goes on as what it is.
            if self.wished and task.uncancel() <= before:
                raise Cancelled from None
            raise
        finally:
            self._task = None
