"""Trouble that a session arranges: faults at their places, and transactions that are refused, lost, in doubt or late.

    > fault EmbeddingFail embedding.local           happens at the next visit of the place, once
    > fault StorageLatency read.changes 2 5         at the next two visits, each of 5 s
    > database files.folders busy                   the next transaction of that module is refused after all its work
    > database Cancellations._close_rest unknown    the next one of that function is stored, and nobody hears of it
    > database agent.turn lost 2                    the next two are not stored, and nobody knows
    > database memory.archives fails after 1        the second one ends in an I/O error
    > database read agent.live.reload late 5        the next read there is made at once, and answered 5 s later
    > database waits files.processing 5             the next transaction there begins 5 s later

A place in the code is a part of `module:function`, without `kelpie.`; what is written there belongs to it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kelpie.core.errors import CommitUnknown, StorageBusy, StorageError
from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.scenarios.fixtures.journal_faults import JournalPoints
from kelpie.world.database import Tx

_RULE = re.compile(
    r"(?P<what>read |)(?P<waits>waits |)(?P<place>\S+)"
    r"( (?P<kind>busy|fails|unknown|lost|late))?( (?P<number>[\d.]+))?( after (?P<skip>\d+))?"
)
_Told = Callable[[JournalPoints, Callable[[Tx], Any]], Awaitable[Any]]


class ChosenFaults(Faults):
    """Faults that happen when a session says so, and not by chance."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self._left: dict[tuple[Fault, str], int] = {}
        self._sizes: dict[Fault, float] = {}

    def choose_next(self, rest: str) -> None:
        """`FAULT PLACE [TIMES [SECONDS]]`. Raises ValueError for what there is not."""
        name, place, times, size = (*rest.split(), "", "", "")[:4]
        aim = Aim(Fault(name), place)
        self._left[aim.fault, aim.place] = int(times or 1)
        if size:
            self._sizes[aim.fault] = float(size)

    def fires(self, fault: Fault, place: str, detail: str = "") -> bool:
        left = self._left.get((fault, place), 0)
        self._left[fault, place] = max(0, left - 1)
        return left > 0

    def size(self, fault: Fault) -> float:
        return self._sizes.get(fault, 1.0)


@dataclass(slots=True)
class _Rule:
    reads: bool
    place: str
    kind: str
    seconds: float
    skip: int
    left: int


class DatabaseTrouble:
    """What happens to the next transactions and reads of some places in the code."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def arrange(self, rest: str) -> None:
        """A rule, as written after `database`. Raises ValueError for what is none."""
        found = _RULE.fullmatch(rest)
        kind = found and (found["kind"] or ("waits" if found["waits"] else ""))
        if found is None or not kind:
            raise ValueError(f"This says no trouble of the database: '{rest}'.")
        number = float(found["number"] or 1)
        slow = kind in ("late", "waits")
        self._rules.append(
            _Rule(
                reads=bool(found["what"]),
                place=found["place"],
                kind=kind,
                seconds=number if slow else 0.0,
                skip=int(found["skip"] or 0),
                left=1 if slow else int(number),
            )
        )

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While the server runs."""
        transact, read = JournalPoints.transact, JournalPoints.read

        async def told_transact(points: JournalPoints, fn: Callable[[Tx], Any]) -> Any:
            return await self._meet(points, fn, transact, reads=False)

        async def told_read(points: JournalPoints, fn: Callable[[Tx], Any]) -> Any:
            return await self._meet(points, fn, read, reads=True)

        JournalPoints.transact, JournalPoints.read = told_transact, told_read  # type: ignore[method-assign]
        try:
            yield
        finally:
            JournalPoints.transact, JournalPoints.read = transact, read  # type: ignore[method-assign]

    async def _meet(self, points: JournalPoints, fn: Callable[[Tx], Any], act: _Told, *, reads: bool) -> Any:
        rule = self._next(fn, reads=reads)
        kind = rule.kind if rule else ""
        if rule is not None and kind == "waits":
            await asyncio.sleep(rule.seconds)
        if kind in ("busy", "fails", "lost"):
            error: StorageError = StorageBusy("The database is locked.")
            if kind == "fails":
                error = StorageError("The database failed: disk I/O error")
            try:
                await act(points, partial(_undone, fn, error))
            except StorageError:
                if kind == "lost":
                    raise _unknown(points) from None
                raise
        result = await act(points, fn)
        if rule is not None and kind == "late":
            await asyncio.sleep(rule.seconds)
        if kind == "unknown":
            raise _unknown(points)
        return result

    def _next(self, fn: Callable[[Tx], Any], *, reads: bool) -> _Rule | None:
        while isinstance(fn, partial):
            fn = fn.func
        where = f"{getattr(fn, '__module__', '')}:{getattr(fn, '__qualname__', '')}".removeprefix("kelpie.")
        for rule in self._rules:
            if rule.left and rule.reads == reads and rule.place in where:
                if rule.skip:
                    rule.skip -= 1
                    return None
                rule.left -= 1
                return rule
        return None


def _undone(fn: Callable[[Tx], Any], error: StorageError, tx: Tx) -> None:
    """All the work, and then nothing of it."""
    fn(tx)
    raise error


def _unknown(points: JournalPoints) -> CommitUnknown:
    points._database._in_doubt()
    points._in_doubt.add(asyncio.current_task())
    return CommitUnknown("The answer was lost.")
