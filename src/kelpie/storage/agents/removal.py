"""Deletion of agents with everything that belongs to them.

An agent is gone for every client at once: it leaves its organization, loses its fence and everything by which others
find it. Its rows are deleted then in pieces, each in a transaction of its own, so that no other write waits for long;
a small agent is one piece. What is left after a crash is found again, because the agent's own row is deleted last.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.search import scope_removal
from kelpie.storage.rows.piece_size import ROWS_MAX, within_bytes
from kelpie.storage.tables import (
    access_token_agents,
    agent_archives,
    agent_blocks,
    agent_file_parts,
    agent_folders,
    agent_head,
    agent_identities,
    agent_secrets,
    agent_tags,
    agent_tools,
    agents,
    approvals,
    blocks,
    client_turns,
    context,
    conversation_blocks,
    conversation_shares,
    conversations,
    entities,
    fact_states,
    facts,
    file_views,
    group_agents,
    groups,
    journal,
    memory_changes,
    messages,
    removed_agents,
    run_events,
    run_otids,
    runs,
    step_tags,
    step_traces,
    steps,
    tool_calls,
    working_memory,
    working_memory_heads,
)
from kelpie.world.database import Tx

LARGE = 20  # rows of tables whose rows bring many others along

_OF_AGENT: sa.BindParameter[str] = sa.bindparam("of_agent", type_=sa.Text)
_MOST = sa.bindparam("most", type_=sa.Integer)

_ORGANIZATION = sa.select(agents.c.organization_id).where(agents.c.id == _OF_AGENT)
_LEAVE = sa.update(agents).where(agents.c.id == _OF_AGENT).values(organization_id="")
_REMEMBER = sa.insert(removed_agents)
_FINDABLE = tuple(
    sa.delete(table).where(table.c.agent_id == _OF_AGENT)
    for table in (
        agent_head,
        approvals,
        fact_states,
        group_agents,
        agent_tags,
        agent_tools,
        agent_secrets,
        agent_identities,
        agent_archives,
        agent_folders,
        access_token_agents,
        memory_changes,
    )
)
_GROUPS = sa.delete(groups).where(groups.c.manager_agent_id == _OF_AGENT)
_NEXT = (
    sa.select(removed_agents.c.agent_id)
    .where(removed_agents.c.agent_id.not_in(sa.bindparam("staged", expanding=True)))
    .order_by(removed_agents.c.removed_at, removed_agents.c.agent_id)
    .limit(1)
)
_AGENT = sa.delete(agents).where(agents.c.id == _OF_AGENT)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The agent's rows of a table: the statement that deletes some, and where they may be large one for their sizes."""

    delete: sa.Delete
    sizes: sa.Select[Any] | None = None

    def delete_some(self, tx: Tx, agent_id: AgentId, most: int) -> int:
        """Deletes at most so many rows; returns their number, or `most` when others may be left."""
        wanted = {"of_agent": agent_id, "most": most}
        if self.sizes is None:
            return tx.execute(self.delete, wanted).rowcount
        found = list(tx.execute(self.sizes, wanted).scalars())
        if (few := within_bytes(found)) > 0:
            tx.execute(self.delete, {**wanted, "most": few})
        return len(found) if few == len(found) else most


def _some(table: sa.Table, large: tuple[str, ...] = (), of_agent: sa.Select[Any] | None = None) -> _Rows:
    """A limited number of the agent's rows of a table; `large` are its columns without a narrow limit."""
    key = tuple(table.primary_key.columns) or (table.c.agent_id, table.c.turn_id, table.c.step)  # the journal has none
    own: sa.Select[Any] = sa.select(*key).where(table.c.agent_id == _OF_AGENT) if of_agent is None else of_agent
    chosen = own.limit(_MOST)
    delete = sa.delete(table).where(key[0].in_(chosen) if len(key) == 1 else sa.tuple_(*key).in_(chosen))
    if not large:
        return _Rows(delete)
    sizes = [sa.func.coalesce(sa.func.length(sa.cast(table.c[name], sa.LargeBinary)), 0) for name in large]
    return _Rows(delete, own.with_only_columns(sum(sizes[1:], start=sizes[0])).limit(_MOST))


def _through(table: sa.Table, parent: sa.Table, link: sa.ColumnElement[bool], large: tuple[str, ...] = ()) -> _Rows:
    """A limited number of rows that belong to rows of the agent."""
    rows = sa.select(*table.primary_key.columns).join(parent, link).where(parent.c.agent_id == _OF_AGENT)
    return _some(table, large, rows)


_OWN_COPIES = (
    sa.select(conversation_blocks.c.block_id)
    .join(conversations, conversations.c.id == conversation_blocks.c.conversation_id)
    .where(conversations.c.agent_id == _OF_AGENT)
)

# Children before their parents, so that no row brings many others along.
_ROWS = (
    _some(context),
    _through(conversation_shares, conversations, conversations.c.id == conversation_shares.c.conversation_id),
    _some(messages, ("content", "tool_calls", "tool_returns")),
    _some(tool_calls),
    _some(run_otids),
    _some(client_turns, ("request",)),
    _through(run_events, runs, runs.c.id == run_events.c.run_id, ("events",)),
    _through(step_traces, steps, steps.c.id == step_traces.c.step_id, ("request", "response")),
    _through(step_tags, steps, steps.c.id == step_tags.c.step_id),
    _some(steps),
    _some(runs, ("input",)),
    _some(journal),
    _some(facts),
    _some(entities),
    _some(working_memory),
    _some(working_memory_heads),
    _some(agent_file_parts, ("document",)),
    _some(file_views),
    _some(agent_blocks),
)
_COPIES = _some(blocks, of_agent=_OWN_COPIES)
_CONVERSATIONS = _some(conversations)


def remove(tx: Tx, agent_id: AgentId, now: Micros, rows: int = ROWS_MAX) -> None:
    """Deletes an agent: for every client now, and at most so many of its rows. Raises NotFound."""
    organization = tx.execute(_ORGANIZATION, {"of_agent": agent_id}).scalar()
    if not organization:
        raise NotFound("Agent", agent_id)
    tx.execute(_REMEMBER, {"agent_id": agent_id, "organization_id": organization, "removed_at": now})
    tx.execute(_GROUPS, {"of_agent": agent_id})
    for statement in _FINDABLE:
        tx.execute(statement, {"of_agent": agent_id})
    tx.execute(_LEAVE, {"of_agent": agent_id})
    purge(tx, agent_id, rows)


def needs_cleanup(tx: Tx, staged: Collection[AgentId] = ()) -> bool:
    """Checks whether rows of a deleted agent remain; those that are being imported now are none."""
    return tx.execute(_NEXT, {"staged": sorted(staged)}).scalar() is not None


def clean_up(tx: Tx, rows: int = ROWS_MAX, staged: Collection[AgentId] = ()) -> None:
    """Deletes at most so many rows of a deleted agent, and with the last of them the agent.

    An import that was cut off has left messages in the search, which the deletion of an agent has removed before.
    """
    agent_id = tx.execute(_NEXT, {"staged": sorted(staged)}).scalar()
    if agent_id is not None and purge(tx, AgentId(agent_id), rows):
        scope_removal.discard_scope(tx, "message", agent_id, rows)


def purge(tx: Tx, agent_id: AgentId, rows: int) -> bool:
    """Deletes at most so many rows; True when the agent is gone."""
    left = rows
    for each in _ROWS:
        left -= each.delete_some(tx, agent_id, left)
        if left <= 0:
            return False
    for each in (_COPIES, _CONVERSATIONS):
        few = min(left, LARGE)
        if each.delete_some(tx, agent_id, few) == few:
            return False
    tx.execute(_AGENT, {"of_agent": agent_id})
    return True
