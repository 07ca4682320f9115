"""Progress of fact extraction, for each agent that has it switched on, and the queue of agents that are due.

Every change moves the version and checks the one that was read: so the facts of a piece of a conversation are written
once, however often it was tried, and never after its history was deleted.
"""

from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, update

from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import UNFINISHED
from kelpie.core.ids import AgentId
from kelpie.core.memory.facts import FactSettings, FactState
from kelpie.core.time import Micros
from kelpie.storage.conversations.message_rows import from_row as message_from_row
from kelpie.storage.tables import fact_states, messages, runs
from kelpie.world.database import Tx

_T, _M = fact_states.c, messages.c
_OWN = _T.agent_id == bindparam("of_agent")
_ONE = select(fact_states).where(_OWN)
_LAST_SEQ = select(func.coalesce(func.max(_M.seq), 0)).where(_M.agent_id == bindparam("of_agent"))
_INSERT = insert(fact_states)
_REMOVE = delete(fact_states).where(_OWN)
_EVERY = update(fact_states).where(_OWN).values(every_turns=bindparam("new_every"), not_before=0, failures=0)
_AGAIN = update(fact_states).where(_OWN).values(through=0, version=_T.version + 1, not_before=0, failures=0)
_OPEN = [status.value for status in UNFINISHED]


def follow(tx: Tx, agent_id: AgentId, settings: FactSettings | None) -> None:
    """Applies the agent's settings. Messages from before facts were switched on are not read."""
    if settings is None or not settings.enabled:
        tx.execute(_REMOVE, {"of_agent": agent_id})
    elif tx.execute(_EVERY, {"of_agent": agent_id, "new_every": settings.every_turns}).rowcount == 0:
        through = int(tx.execute(_LAST_SEQ, {"of_agent": agent_id}).scalar_one())
        begin = {"version": 1, "through": through, "failures": 0, "not_before": 0, "extractions": 0, "skipped": 0}
        tx.execute(_INSERT, {"agent_id": agent_id, "every_turns": settings.every_turns, **begin})


def rewind(tx: Tx, agent_id: AgentId) -> None:
    """Resets the progress after the history was deleted: its numbers start anew."""
    tx.execute(_AGAIN, {"of_agent": agent_id})


_THROUGH = (
    update(fact_states)
    .where(_OWN)
    .values(through=bindparam("new_through"), version=_T.version + 1, not_before=0, failures=0)
)


def set_through(tx: Tx, agent_id: AgentId, through: int | None) -> None:
    """Sets the progress for a replaced history: extraction is done up to here; None is all of it."""
    last = int(tx.execute(_LAST_SEQ, {"of_agent": agent_id}).scalar_one())
    tx.execute(_THROUGH, {"of_agent": agent_id, "new_through": last if through is None else min(through, last)})


def get(tx: Tx, agent_id: AgentId) -> FactState | None:
    row = tx.execute(_ONE, {"of_agent": agent_id}).first()
    return None if row is None else _from_row(row)


_CHANGED = ("through", "failures", "not_before", "extractions", "skipped", "last_at", "last_error")
_CHANGE = (
    update(fact_states)
    .where(_OWN, _T.version == bindparam("old_version"), _T.through == bindparam("old_through"))
    .values(version=_T.version + 1, **{name: bindparam(f"new_{name}") for name in _CHANGED})
)


def change(tx: Tx, old: FactState, new: FactState) -> bool:
    """Replaces the state that was read; False when that is no longer current."""
    bound = {f"new_{name}": getattr(new, name) for name in _CHANGED}
    was = {"of_agent": old.agent_id, "old_version": old.version, "old_through": old.through}
    return tx.execute(_CHANGE, {**was, **bound}).rowcount == 1


def _from_row(row: Row[Any]) -> FactState:
    values: dict[str, Any] = {name: getattr(row, name) for name in FactState.__slots__}
    values["agent_id"] = AgentId(row.agent_id)
    return FactState(**values)


# --- due work ---------------------------------------------------------------------------------------------------------

_TURNS = (
    select(func.count(_M.run_id.distinct()))
    .join(runs, runs.c.id == _M.run_id)
    .where(_M.agent_id == _T.agent_id, _M.seq > _T.through, _M.role == "user", runs.c.status.not_in(_OPEN))
    .scalar_subquery()
)
_DUE = (
    select(fact_states)
    .where(_T.not_before <= bindparam("now"), _T.every_turns <= _TURNS)
    .order_by(_T.not_before, _T.agent_id)
    .limit(bindparam("most"))
)
_PIECE = (
    select(messages, runs.c.status.label("run_status"))
    .join(runs, runs.c.id == _M.run_id, isouter=True)
    .where(_M.agent_id == bindparam("of_agent"), _M.seq > bindparam("after"))
    .order_by(_M.seq)
    .limit(bindparam("most"))
)


def due(tx: Tx, now: Micros, most: int) -> list[FactState]:
    """The agents with enough turns since the last extraction, the longest waiting first."""
    return [_from_row(row) for row in tx.execute(_DUE, {"now": now, "most": most})]


def messages_since(tx: Tx, state: FactState, most: int) -> list[Message]:
    """The messages after the extracted ones, oldest first, up to the first turn that is still running."""
    found: list[Message] = []
    for row in tx.execute(_PIECE, {"of_agent": state.agent_id, "after": state.through, "most": most}):
        if row.run_status in _OPEN:
            break
        found.append(message_from_row(row))
    return found
