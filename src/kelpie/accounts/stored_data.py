"""Check of the stored data: rows that are not as they were written, and rows that do not fit together.

It reads the data of every organization, so only the operator may run it. It works in small pieces within a time limit,
reports what it did not reach, and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Forbidden
from kelpie.storage.accounts import usage
from kelpie.storage.integrity import row_checks
from kelpie.world.database import Tx
from kelpie.world.world import World

LOOK_S = 20.0
SHOWN = 10  # ids of damaged rows in the report, of each kind
_NS = 1e9
MISCOUNTED = "a usage counter that differs from the rows"  # POST /v1/kelpie/usage/{id}/recount corrects it


@dataclass(slots=True)
class Damage:
    """Result for one kind of row: the number checked, the number damaged, and the ids of some."""

    kind: str
    remedy: str
    looked_at: int = 0
    damaged: int = 0
    ids: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class DataState:
    """Result of a check. `unlooked` names what there was no time for; nothing is known about it."""

    rows: Sequence[Damage]
    wrongs: dict[str, int]  # what does not hang together, and how often
    unlooked: Sequence[str]
    remedy: str

    @property
    def sound(self) -> bool:
        return not self.wrongs and not any(each.damaged for each in self.rows)


class StoredData:
    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._caller = caller

    async def look(self, seconds: float = LOOK_S) -> DataState:
        """Checks everything, for at most about the given time. Raises Forbidden, StorageError."""
        if not self._caller.operator:
            raise Forbidden("Only the operator may check the stored data; authenticate with the server password.")
        until = self._world.clock.monotonic_ns() + int(seconds * _NS)
        rows, unlooked = list[Damage](), list[str]()
        for kind in row_checks.KINDS:
            found, whole = await self._rows(kind, until)
            rows.append(found)
            unlooked += () if whole else (f"each {kind.name}",)
        wrongs, later = await self._wrongs(until)
        if self._world.clock.monotonic_ns() >= until:
            unlooked.append(MISCOUNTED)
        elif miscounted := await self._world.database.read(usage.count_miscounted):
            wrongs[MISCOUNTED] = miscounted
        return DataState(rows, wrongs, [*unlooked, *later], row_checks.WRONG_REMEDY)

    async def _rows(self, kind: row_checks.Kind, until: int) -> tuple[Damage, bool]:
        """The result for the rows of a kind, and True if these were all."""
        found = Damage(kind.name, kind.remedy)
        last = None
        while self._world.clock.monotonic_ns() < until:
            page = await self._world.database.read(lambda tx, last=last: row_checks.look(tx, kind, last))
            found.looked_at += page.rows
            found.damaged += len(page.damaged)
            found.ids += page.damaged[: SHOWN - len(found.ids)]
            last = page.last
            if last is None:
                return found, True
        return found, False

    async def _wrongs(self, until: int) -> tuple[dict[str, int], Sequence[str]]:
        if not await self._world.database.read(row_checks.is_known):
            return {}, row_checks.WRONGS
        found: dict[str, int] = {}
        for place, what in enumerate(row_checks.WRONGS):
            if self._world.clock.monotonic_ns() >= until:
                return found, row_checks.WRONGS[place:]

            def count(tx: Tx, what: str = what) -> int:
                return row_checks.count_wrong(tx, what)

            if number := await self._world.database.read(count):
                found[what] = number
        return found, ()
