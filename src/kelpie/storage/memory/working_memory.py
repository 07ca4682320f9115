"""Working memory as rows. Every read deletes expired entries first: an entry that was reported as gone never comes
back, even when the clock goes back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId
from kelpie.core.memory.working_memory import EntryQuery, WorkingMemoryEntry, size_of
from kelpie.core.time import Micros
from kelpie.storage.rows.row_bytes import within_bytes
from kelpie.storage.tables import working_memory, working_memory_heads
from kelpie.world.database import Tx

PIECE = 500  # entries that are deleted in one transaction: about 5 ms

_C = working_memory.c
_OF_AGENT = _C.agent_id == sa.bindparam("of_agent")
_OF_KEY = sa.and_(_OF_AGENT, _C.key == sa.bindparam("of_key"))
_LAPSED = _C.expires_at <= sa.bindparam("now")

_ALL = sa.select(working_memory).where(_OF_AGENT)
_ONE = sa.select(working_memory).where(_OF_KEY)
_HAS_LAPSED = sa.select(sa.literal(1)).where(_OF_AGENT, _LAPSED).limit(1)
_DROP_LAPSED = sa.delete(working_memory).where(_OF_AGENT, _LAPSED)
_DROP = sa.delete(working_memory).where(_OF_KEY)
_REMOVE_KEYS = sa.delete(working_memory).where(
    working_memory.c.agent_id == sa.bindparam("of_agent"),
    working_memory.c.key.in_(sa.bindparam("keys", expanding=True)),
)
_CLEAR = sa.delete(working_memory).where(_OF_AGENT)
_USED = sa.select(
    sa.func.count(),
    sa.func.coalesce(sa.func.sum(_C.bytes), 0),
    sa.func.coalesce(sa.func.sum(sa.case((_C.key == sa.bindparam("of_key"), _C.bytes), else_=0)), 0),
).where(_OF_AGENT)
_INSERT = sa.insert(working_memory)
_REPLACE = (
    sa.update(working_memory)
    .where(_OF_KEY)
    .values({name: sa.bindparam(f"new_{name}") for name in ("value", "bytes", "version", "updated_at", "expires_at")})
)
_NUMBER = sa.select(working_memory_heads.c.version).where(working_memory_heads.c.agent_id == sa.bindparam("of_agent"))
_FIRST_NUMBER = sa.insert(working_memory_heads)
_NEXT_NUMBER = (
    sa.update(working_memory_heads)
    .where(working_memory_heads.c.agent_id == sa.bindparam("of_agent"))
    .values(version=working_memory_heads.c.version + 1)
)
_RAISE_NUMBER = (
    sa.update(working_memory_heads)
    .where(
        working_memory_heads.c.agent_id == sa.bindparam("of_agent"),
        working_memory_heads.c.version < sa.bindparam("least"),
    )
    .values(version=sa.bindparam("least"))
)


def _from_row(row: sa.Row[Any]) -> WorkingMemoryEntry:
    return WorkingMemoryEntry(
        row.key, orjson.loads(row.value), row.version, row.created_at, row.updated_at, row.expires_at
    )


def has_lapsed(tx: Tx, agent_id: AgentId, now: Micros) -> bool:
    """Checks whether the agent has expired entries."""
    return tx.execute(_HAS_LAPSED, {"of_agent": agent_id, "now": now}).first() is not None


def drop_lapsed(tx: Tx, agent_id: AgentId, now: Micros) -> None:
    """Deletes expired entries."""
    tx.execute(_DROP_LAPSED, {"of_agent": agent_id, "now": now})


def next_version(tx: Tx, agent_id: AgentId) -> int:
    """The number of a write, unique for the agent; other writers wait until the transaction ends."""
    if tx.execute(_NEXT_NUMBER, {"of_agent": agent_id}).rowcount == 0:
        tx.execute(_FIRST_NUMBER, {"agent_id": agent_id, "version": 1})
    return int(tx.execute(_NUMBER, {"of_agent": agent_id}).scalar_one())


def get(tx: Tx, agent_id: AgentId, key: str) -> WorkingMemoryEntry | None:
    row = tx.execute(_ONE, {"of_agent": agent_id, "of_key": key}).first()
    return None if row is None else _from_row(row)


def every(tx: Tx, agent_id: AgentId) -> list[WorkingMemoryEntry]:
    """All entries of an agent, by key."""
    return sorted((_from_row(row) for row in tx.execute(_ALL, {"of_agent": agent_id})), key=lambda entry: entry.key)


def used(tx: Tx, agent_id: AgentId, key: str) -> tuple[int, int, int]:
    """The number of entries, their bytes, and the bytes of this key."""
    count, size, own = tx.execute(_USED, {"of_agent": agent_id, "of_key": key}).one()
    return int(count), int(size), int(own)


def insert_many(tx: Tx, agent_id: AgentId, entries: Sequence[tuple[WorkingMemoryEntry, str]]) -> None:
    """Writes new entries, each with its value as JSON."""
    if entries:
        tx.execute(_INSERT, [_to_row(agent_id, entry, text) for entry, text in entries])


def _to_row(agent_id: AgentId, entry: WorkingMemoryEntry, text: str) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "key": entry.key,
        "value": text,
        "bytes": size_of(entry.key, text),
        "version": entry.version,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
        "expires_at": entry.expires_at,
    }


def replace(tx: Tx, agent_id: AgentId, entry: WorkingMemoryEntry, text: str) -> None:
    """Gives an existing entry a new value and a new expiry."""
    row = _to_row(agent_id, entry, text)
    names = ("value", "bytes", "version", "updated_at", "expires_at")
    tx.execute(_REPLACE, {"of_agent": agent_id, "of_key": entry.key} | {f"new_{name}": row[name] for name in names})


def remove(tx: Tx, agent_id: AgentId, key: str) -> bool:
    """Deletes an entry; False when there is no such entry."""
    return tx.execute(_DROP, {"of_agent": agent_id, "of_key": key}).rowcount == 1


def clear(tx: Tx, agent_id: AgentId) -> int:
    """Deletes everything and returns how much that was."""
    return tx.execute(_CLEAR, {"of_agent": agent_id}).rowcount


def remove_keys(tx: Tx, agent_id: AgentId, keys: Sequence[str]) -> None:
    """Deletes the entries with these keys."""
    tx.execute(_REMOVE_KEYS, {"of_agent": agent_id, "keys": list(keys)})


def raise_version(tx: Tx, agent_id: AgentId, least: int) -> None:
    """Ensures that later writes get higher numbers than this one."""
    next_version(tx, agent_id)
    tx.execute(_RAISE_NUMBER, {"of_agent": agent_id, "least": least})


# --- lists ----------------------------------------------------------------------------------------------------------

_FILTERS: dict[str, sa.ColumnElement[bool]] = {
    "prefix": sa.func.substr(_C.key, 1, sa.bindparam("prefix_chars", type_=sa.Integer)) == sa.bindparam("prefix"),
    "updated_after": _C.updated_at > sa.bindparam("updated_after"),
    "updated_before": _C.updated_at < sa.bindparam("updated_before"),
    "created_after": _C.created_at > sa.bindparam("created_after"),
    "created_before": _C.created_at < sa.bindparam("created_before"),
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything about a list that changes the text of its statement."""

    filters: tuple[str, ...]
    order_by: str
    descending: bool
    after: bool
    before: bool


def select(tx: Tx, agent_id: AgentId, query: EntryQuery) -> list[WorkingMemoryEntry]:
    """The entries on the requested page. Raises NotFound for a cursor that is gone, unless the order is by key."""
    page = query.page
    given: dict[str, Any] = {
        "prefix": query.prefix or None,
        "updated_after": query.updated_after,
        "updated_before": query.updated_before,
        "created_after": query.created_after,
        "created_before": query.created_before,
    }
    used = {name: value for name, value in given.items() if value is not None}
    shape = _Shape(tuple(used), page.order_by, page.descending, page.after is not None, page.before is not None)
    bound = {"of_agent": agent_id, "most": page.limit, **used, **_cursors(tx, agent_id, query)}
    if query.prefix:
        bound["prefix_chars"] = len(query.prefix)
    found = [_from_row(row) for row in within_bytes(tx.execute(_listing(shape), bound), page.bytes_max)]
    return found[::-1] if shape.before and not shape.after else found


def _cursors(tx: Tx, agent_id: AgentId, query: EntryQuery) -> Mapping[str, Any]:
    bound: dict[str, Any] = {}
    for side, key in (("after", query.page.after), ("before", query.page.before)):
        if key is None:
            continue
        bound[f"{side}_key"] = key
        if query.page.order_by != "key":
            entry = get(tx, agent_id, key)
            if entry is None:
                raise NotFound("Entry", key)
            bound[f"{side}_time"] = getattr(entry, query.page.order_by)
    return bound


@lru_cache(maxsize=512)
def _listing(shape: _Shape) -> sa.Select[Any]:
    where = [_FILTERS[name] for name in shape.filters]
    where += [_past(shape, side) for side in ("after", "before") if getattr(shape, side)]
    down = shape.descending != (shape.before and not shape.after)  # read towards the start, turned round afterwards
    columns = (_C.key,) if shape.order_by == "key" else (_C[shape.order_by], _C.key)
    order = [column.desc() if down else column.asc() for column in columns]
    return _ALL.where(*where).order_by(*order).limit(sa.bindparam("most", type_=sa.Integer))


def _past(shape: _Shape, side: str) -> sa.ColumnElement[bool]:
    up = (side == "after") != shape.descending
    key: sa.BindParameter[Any] = sa.bindparam(f"{side}_key")
    beyond_key = _C.key > key if up else _C.key < key
    if shape.order_by == "key":
        return beyond_key
    time: sa.BindParameter[Any] = sa.bindparam(f"{side}_time")
    column = _C[shape.order_by]
    return sa.or_(column > time if up else column < time, sa.and_(column == time, beyond_key))


# --- cleanup --------------------------------------------------------------------------------------------------------

_UNSWEPT = sa.select(sa.literal(1)).select_from(working_memory).where(_LAPSED).limit(1)
_OLDEST = sa.select(_C.agent_id, _C.key).where(_LAPSED).order_by(_C.expires_at).limit(PIECE)
_DROP_ONE_LAPSED = sa.delete(working_memory).where(_OF_KEY, _LAPSED)


def needs_cleanup(tx: Tx, now: Micros) -> bool:
    """Checks whether any agent has expired entries."""
    return tx.execute(_UNSWEPT, {"now": now}).first() is not None


def clean_up(tx: Tx, now: Micros) -> None:
    """Deletes a piece of the expired entries, the longest expired first."""
    found = tx.execute(_OLDEST, {"now": now}).all()
    if found:
        tx.execute(_DROP_ONE_LAPSED, [{"of_agent": row.agent_id, "of_key": row.key, "now": now} for row in found])
