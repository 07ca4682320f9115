"""Runs that have not ended: those that a crash cut short, and background runs that wait for their lane."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, func, select

from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ConversationId, RunId
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.runs.input import RunInput, run_input_from_json
from kelpie.storage.runs.runs import run_from_row
from kelpie.storage.tables import runs
from kelpie.world.database import Tx

_ONE = select(runs).where(runs.c.id == bindparam("of_run"))
_PRESENT = row_ownership.of_present_agent(runs.c.agent_id)
_UNFINISHED_AGENTS = (
    select(runs.c.agent_id)
    .where(runs.c.status.in_([s.value for s in UNFINISHED]), _PRESENT)
    .distinct()
    .order_by(runs.c.agent_id)
)
_UNFINISHED_OF = (
    select(runs)
    .where(runs.c.agent_id == bindparam("of_agent"), runs.c.status.in_([s.value for s in UNFINISHED]))
    .order_by(runs.c.created_at, runs.c.id)
)


def agents_with_unfinished(tx: Tx) -> list[AgentId]:
    return [AgentId(row[0]) for row in tx.execute(_UNFINISHED_AGENTS)]


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run that never ended, its input, and the node that was running it."""

    run: Run
    given: RunInput
    node: Node
    taken_up: int = 0  # number of times a lane started it


def unfinished_of(tx: Tx, agent_id: AgentId) -> list[UnfinishedRun]:
    """Runs of an agent that never ended, oldest first."""
    return [_unfinished_from_row(row) for row in tx.execute(_UNFINISHED_OF, {"of_agent": agent_id})]


def find_unfinished(tx: Tx, run_id: RunId) -> UnfinishedRun | None:
    """A run that has not ended; None when it has, or is gone."""
    row = tx.execute(_ONE, {"of_run": run_id}).first()
    return None if row is None or RunStatus(row.status) not in UNFINISHED else _unfinished_from_row(row)


def _unfinished_from_row(row: Row[Any]) -> UnfinishedRun:
    node = Node(row.owner, row.owner_incarnation)
    return UnfinishedRun(run_from_row(row), run_input_from_json(row.input), node, row.taken_up)


def given(tx: Tx, run_id: RunId) -> RunInput:
    """The input of a run. Raises NotFound."""
    row = tx.execute(_ONE, {"of_run": run_id}).first()
    if row is None:
        raise NotFound("Run", run_id)
    return run_input_from_json(row.input)


_BACKGROUND = (
    select(runs.c.id, runs.c.agent_id, runs.c.conversation_id)
    .where(runs.c.status.in_([s.value for s in UNFINISHED]), runs.c.background, _PRESENT)
    .order_by(runs.c.created_at, runs.c.id)
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A background run that has not ended, with its agent and conversation."""

    run_id: RunId
    agent_id: AgentId
    conversation_id: ConversationId | None


def in_background(tx: Tx) -> list[StoredRun]:
    """All background runs that have not ended, oldest first."""
    return [
        StoredRun(
            RunId(row.id), AgentId(row.agent_id), ConversationId(row.conversation_id) if row.conversation_id else None
        )
        for row in tx.execute(_BACKGROUND)
    ]


_NEWEST_IN_BACKGROUND = (
    select(runs.c.id)
    .where(
        runs.c.status.in_([s.value for s in UNFINISHED]),
        runs.c.background,
        runs.c.agent_id == bindparam("of_agent"),
        func.coalesce(runs.c.conversation_id, "") == bindparam("of_conversation"),
    )
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    .limit(1)
)


def newest_in_background(tx: Tx, agent_id: AgentId, conversation: str) -> RunId | None:
    """The newest background run of a conversation that has not ended."""
    found = tx.execute(_NEWEST_IN_BACKGROUND, {"of_agent": agent_id, "of_conversation": conversation}).scalar()
    return None if found is None else RunId(found)
