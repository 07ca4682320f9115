"""Changes of memory that take several transactions, as rows: what is wanted, written down before anything is changed.

A change that is decided is completed, whatever happens; one that is not has changed nothing and is dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.tables import memory_change_parts, memory_changes
from kelpie.world.database import Tx

PART_BYTES = 512 * 1024

_C, _P = memory_changes.c, memory_change_parts.c
_OF: sa.BindParameter[str] = sa.bindparam("of_agent", type_=sa.Text)
_ALL = sa.select(memory_changes).order_by(_C.created_at, _C.agent_id)
_ONE = sa.select(_C.decided).where(_C.agent_id == _OF)
_INSERT = sa.insert(memory_changes)
_INSERT_PART = sa.insert(memory_change_parts)
_DECIDE = sa.update(memory_changes).where(_C.agent_id == _OF).values(decided=True)
_SETTLE = sa.update(memory_changes).where(_C.agent_id == _OF).values(decided=False)
_PARTS = sa.select(_P.data).where(_P.agent_id == _OF).order_by(_P.number)
_LAST_PARTS = (
    sa.select(_P.number)
    .where(_P.agent_id == _OF)
    .order_by(_P.number.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_DROP_PARTS = sa.delete(memory_change_parts).where(
    _P.agent_id == _OF, _P.number.in_(sa.bindparam("numbers", expanding=True))
)
_DROP = sa.delete(memory_changes).where(_C.agent_id == _OF)
_PARTS_DROPPED = 2  # in one transaction


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One change. `request` says what is wanted beside the document."""

    agent_id: AgentId
    organization: OrganizationId
    decided: bool
    request: Mapping[str, Any]
    created_at: Micros


def begin(tx: Tx, change: MemoryChange) -> bool:
    """Writes a change that is not decided yet; False when there is another one for the agent."""
    if tx.execute(_ONE, {"of_agent": change.agent_id}).first() is not None:
        return False
    tx.execute(
        _INSERT,
        {
            "agent_id": change.agent_id,
            "organization_id": change.organization,
            "decided": False,
            "request": dict(change.request),
            "created_at": change.created_at,
        },
    )
    return True


def add_part(tx: Tx, agent_id: AgentId, number: int, data: bytes) -> None:
    """Writes a part of the document."""
    tx.execute(_INSERT_PART, {"agent_id": agent_id, "number": number, "data": data})


def decide(tx: Tx, agent_id: AgentId) -> bool:
    """From now on the change is completed; False when it is gone, with its agent."""
    return tx.execute(_DECIDE, {"of_agent": agent_id}).rowcount == 1


def is_decided(tx: Tx, agent_id: AgentId) -> bool:
    """Checks whether a change is to be completed."""
    return bool(tx.execute(_ONE, {"of_agent": agent_id}).scalar())


def settle(tx: Tx, agent_id: AgentId) -> None:
    """Marks a change as done: nothing is left of it but rows to be deleted."""
    tx.execute(_SETTLE, {"of_agent": agent_id})


def document(tx: Tx, agent_id: AgentId) -> bytes:
    """The document of a change."""
    return b"".join(tx.execute(_PARTS, {"of_agent": agent_id}).scalars())


def every(tx: Tx) -> list[MemoryChange]:
    """All changes, the oldest first."""
    return [
        MemoryChange(
            AgentId(row.agent_id), OrganizationId(row.organization_id), row.decided, row.request, row.created_at
        )
        for row in tx.execute(_ALL)
    ]


def drop_parts(tx: Tx, agent_id: AgentId) -> bool:
    """Deletes some parts of the document; True when none are left."""
    found = list(tx.execute(_LAST_PARTS, {"of_agent": agent_id, "most": _PARTS_DROPPED}).scalars())
    if found:
        tx.execute(_DROP_PARTS, {"of_agent": agent_id, "numbers": found})
    return len(found) < _PARTS_DROPPED


def end(tx: Tx, agent_id: AgentId) -> None:
    """Deletes the change with what is left of its document."""
    tx.execute(_DROP, {"of_agent": agent_id})
