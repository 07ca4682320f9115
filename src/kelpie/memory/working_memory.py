"""Working memory API, and its writes as functions of a transaction, which the agents' tools share.

A write reads the entry inside its own transaction, so that of two concurrent increments none is lost. An expired entry
is gone for every reader at that moment; the request that finds it removes it before it answers, so that a clock that
goes back does not bring it back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import AgentId
from kelpie.core.memory.working_memory import (
    KEEP,
    Change,
    EntryQuery,
    Keep,
    Ttl,
    WorkingMemoryEntry,
    WorkingMemoryLimits,
    changed,
    check_key,
    encoded,
    end_of,
    size_of,
)
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.memory import working_memory as rows
from kelpie.world.database import Tx
from kelpie.world.world import World

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Working memory of one agent at one moment, with its limits."""

    agent_id: AgentId
    now: Micros
    limits: WorkingMemoryLimits = WorkingMemoryLimits()


def put(
    tx: Tx, place: Place, key: str, value: Any, ttl_seconds: float | None = None, if_version: int | None = None
) -> WorkingMemoryEntry:
    """Sets an entry. Raises InvalidInput, and Conflict when it does not have the version that it should have."""
    before, version = _begin(tx, place, key, if_version)
    return _write(
        tx, place, before, WorkingMemoryEntry(key, value, version, place.now, place.now, end_of(ttl_seconds, place.now))
    )


def update(
    tx: Tx, place: Place, key: str, change: Change | None, ttl: Ttl = KEEP, if_version: int | None = None
) -> WorkingMemoryEntry:
    """Changes an entry based on its present value, or only its expiry.

    Raises InvalidInput, Conflict as `put` does, and NotFound when only the expiry is changed and there is no entry.
    """
    before, version = _begin(tx, place, key, if_version)
    if change is None:
        if before is None:
            raise NotFound("Entry", key)
        value = before.value
    else:
        value = changed(before, change)
    kept = None if before is None else before.expires_at
    end = kept if isinstance(ttl, Keep) else end_of(ttl, place.now)
    return _write(tx, place, before, WorkingMemoryEntry(key, value, version, place.now, place.now, end))


def delete(tx: Tx, place: Place, key: str, if_version: int | None = None) -> WorkingMemoryEntry:
    """Removes an entry and returns it. Raises NotFound, and Conflict as `put` does."""
    before, _ = _begin(tx, place, key, if_version)
    if before is None:
        raise NotFound("Entry", key)
    rows.remove(tx, place.agent_id, key)
    return before


def find(tx: Tx, place: Place, key: str) -> WorkingMemoryEntry | None:
    """The entry, if it is there."""
    rows.drop_lapsed(tx, place.agent_id, place.now)
    return rows.get(tx, place.agent_id, key)


def listed(tx: Tx, place: Place, query: EntryQuery) -> list[WorkingMemoryEntry]:
    """The entries on the page asked for. Raises NotFound for a cursor that is gone, unless the order is by key."""
    rows.drop_lapsed(tx, place.agent_id, place.now)
    return rows.select(tx, place.agent_id, query)


def _begin(tx: Tx, place: Place, key: str, if_version: int | None) -> tuple[WorkingMemoryEntry | None, int]:
    """The present entry, and the version that a write gets."""
    check_key(key)
    version = rows.next_version(tx, place.agent_id)
    rows.drop_lapsed(tx, place.agent_id, place.now)
    before = rows.get(tx, place.agent_id, key)
    if if_version is not None and if_version != (before.version if before else 0):
        stands = f"has version {before.version}" if before else "does not exist"
        raise Conflict(f"if_version: '{key}' {stands}, but you expected version {if_version}. Read the entry again.")
    return before, version


def _write(tx: Tx, place: Place, before: WorkingMemoryEntry | None, after: WorkingMemoryEntry) -> WorkingMemoryEntry:
    text = encoded(after.value, place.limits)
    _check_room(tx, place, after.key, text)
    if before is None:
        rows.insert_many(tx, place.agent_id, [(after, text)])
        return after
    rows.replace(tx, place.agent_id, after, text)
    return replace(after, created_at=before.created_at)


def _check_room(tx: Tx, place: Place, key: str, text: str) -> None:
    """Raises InvalidInput when there would be too much; what gets no larger may always be written."""
    limits, size = place.limits, size_of(key, text)
    count, total, own = rows.used(tx, place.agent_id, key)
    if not own and count >= limits.entries:
        raise InvalidInput("key", f"Working memory is full: the limit is {limits.entries} entries. Delete some first.")
    after = total - own + size
    if size > own and after > limits.bytes:
        raise InvalidInput(
            "value", f"Working memory would have {after} bytes, and the limit is {limits.bytes}. Delete entries first."
        )


class WorkingMemory:
    """Working memory of the agents of the caller's organization."""

    def __init__(self, world: World, settings: Settings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._limits = settings.working_memory
        self._organization = caller.organization_id

    async def get(self, agent_id: AgentId, key: str) -> WorkingMemoryEntry:
        """Raises NotFound."""
        found = await self._seen(agent_id, lambda tx: rows.get(tx, agent_id, key))
        if found is None:
            raise NotFound("Entry", key)
        return found

    async def page(self, agent_id: AgentId, query: EntryQuery) -> list[WorkingMemoryEntry]:
        """Raises NotFound for an unknown agent or a cursor that is gone."""
        return await self._seen(agent_id, lambda tx: rows.select(tx, agent_id, query))

    async def put(
        self,
        agent_id: AgentId,
        key: str,
        value: Any,
        ttl_seconds: float | None = None,
        if_version: int | None = None,
    ) -> WorkingMemoryEntry:
        """Sets an entry and its expiry. Raises NotFound, InvalidInput, and Conflict for `if_version`."""
        return await self._written(agent_id, lambda tx, place: put(tx, place, key, value, ttl_seconds, if_version))

    async def update(
        self, agent_id: AgentId, key: str, change: Change | None, ttl: Ttl = KEEP, if_version: int | None = None
    ) -> WorkingMemoryEntry:
        """Changes an entry by what it holds. Raises NotFound, InvalidInput, and Conflict for `if_version`."""
        return await self._written(agent_id, lambda tx, place: update(tx, place, key, change, ttl, if_version))

    async def delete(self, agent_id: AgentId, key: str, if_version: int | None = None) -> WorkingMemoryEntry:
        """Removes an entry and returns it. Raises NotFound, and Conflict for `if_version`."""
        return await self._written(agent_id, lambda tx, place: delete(tx, place, key, if_version))

    async def clear(self, agent_id: AgentId) -> int:
        """Removes every entry and returns their number. Raises NotFound for an unknown agent."""

        def write(tx: Tx, place: Place) -> int:
            rows.drop_lapsed(tx, agent_id, place.now)
            return rows.clear(tx, agent_id)

        return await self._written(agent_id, write)

    async def _written(self, agent_id: AgentId, write: Callable[[Tx, Place], T]) -> T:
        place = Place(agent_id, self._world.clock.now(), self._limits)

        def checked(tx: Tx) -> T:
            row_ownership.agent(tx, self._organization, agent_id)
            return write(tx, place)

        return await self._world.database.transact(checked)

    async def _seen(self, agent_id: AgentId, look: Callable[[Tx], T]) -> T:
        """Result of `look` on the entries that have not expired; a write only if expired ones must be removed first."""
        now = self._world.clock.now()

        def read(tx: Tx) -> tuple[T] | None:
            row_ownership.agent(tx, self._organization, agent_id)
            return None if rows.has_lapsed(tx, agent_id, now) else (look(tx),)

        def write(tx: Tx) -> tuple[T]:
            rows.drop_lapsed(tx, agent_id, now)
            return (look(tx),)

        found = await self._world.database.read(read)
        return (found or await self._world.database.transact(write))[0]
