"""Deletion of agents with everything that belongs to them.

An agent is gone for every client at once: it leaves its organization, loses its fence and everything by which others
find it. Its rows are deleted then in pieces, each in a transaction of its own, so that no other write waits for long;
a small agent is one piece. What is left after a crash is found again, because the agent's own row is deleted last.
"""

from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.storage.rows.piece_size import ROWS_MAX
from kelpie.storage.tables import (
    access_token_agents,
    agent_archives,
    agent_blocks,
    agent_head,
    agent_identities,
    agent_secrets,
    agent_tags,
    agent_tools,
    agents,
    approvals,
    blocks,
    context,
    conversation_blocks,
    conversation_shares,
    conversations,
    entities,
    fact_states,
    facts,
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

BYTES = 4 * 1024 * 1024  # of messages that are deleted in one transaction
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
        access_token_agents,
        memory_changes,
    )
)
_GROUPS = sa.delete(groups).where(groups.c.manager_agent_id == _OF_AGENT)
_NEXT = sa.select(removed_agents.c.agent_id).order_by(removed_agents.c.removed_at, removed_agents.c.agent_id).limit(1)
_AGENT = sa.delete(agents).where(agents.c.id == _OF_AGENT)


def _some(table: sa.Table, of_agent: sa.Select[Any] | None = None) -> sa.Delete:
    """Deletes a limited number of the agent's rows of a table."""
    key = tuple(table.primary_key.columns) or (table.c.agent_id, table.c.turn_id, table.c.step)  # the journal has none
    own: sa.Select[Any] = sa.select(*key).where(table.c.agent_id == _OF_AGENT) if of_agent is None else of_agent
    chosen = own.limit(_MOST)
    return sa.delete(table).where(key[0].in_(chosen) if len(key) == 1 else sa.tuple_(*key).in_(chosen))


def _through(table: sa.Table, parent: sa.Table, link: sa.ColumnElement[bool]) -> sa.Delete:
    """Deletes a limited number of rows that belong to rows of the agent."""
    rows = sa.select(*table.primary_key.columns).join(parent, link).where(parent.c.agent_id == _OF_AGENT)
    return _some(table, rows)


_OWN_COPIES = (
    sa.select(conversation_blocks.c.block_id)
    .join(conversations, conversations.c.id == conversation_blocks.c.conversation_id)
    .where(conversations.c.agent_id == _OF_AGENT)
)
_MESSAGES = (
    sa.select(messages.c.id, sa.func.length(sa.cast(messages.c.content, sa.Text)).label("size"))
    .where(messages.c.agent_id == _OF_AGENT)
    .limit(_MOST)
)
_THESE_MESSAGES = sa.delete(messages).where(messages.c.id.in_(sa.bindparam("ids", expanding=True)))

# Children before their parents, so that no row brings many others along.
_BEFORE_MESSAGES = (
    _some(context),
    _through(conversation_shares, conversations, conversations.c.id == conversation_shares.c.conversation_id),
)
_AFTER_MESSAGES = (
    _some(tool_calls),
    _some(run_otids),
    _through(run_events, runs, runs.c.id == run_events.c.run_id),
    _through(step_traces, steps, steps.c.id == step_traces.c.step_id),
    _through(step_tags, steps, steps.c.id == step_tags.c.step_id),
    _some(steps),
    _some(runs),
    _some(journal),
    _some(facts),
    _some(entities),
    _some(working_memory),
    _some(working_memory_heads),
    _some(agent_blocks),
)
_COPIES = _some(blocks, _OWN_COPIES)
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


def needs_cleanup(tx: Tx) -> bool:
    """Checks whether rows of a deleted agent remain."""
    return tx.execute(_NEXT).scalar() is not None


def clean_up(tx: Tx, rows: int = ROWS_MAX) -> None:
    """Deletes at most so many rows of a deleted agent, and with the last of them the agent."""
    agent_id = tx.execute(_NEXT).scalar()
    if agent_id is not None:
        purge(tx, AgentId(agent_id), rows)


def purge(tx: Tx, agent_id: AgentId, rows: int) -> bool:
    """Deletes at most so many rows; True when the agent is gone."""
    of_agent, left = {"of_agent": agent_id}, rows
    for statement in _BEFORE_MESSAGES:
        left -= tx.execute(statement, {**of_agent, "most": left}).rowcount
        if left <= 0:
            return False
    left -= _purge_messages(tx, agent_id, left)
    for statement in _AFTER_MESSAGES:
        if left <= 0:
            return False
        left -= tx.execute(statement, {**of_agent, "most": left}).rowcount
    for statement in (_COPIES, _CONVERSATIONS):
        few = min(left, LARGE)
        if few <= 0 or tx.execute(statement, {**of_agent, "most": few}).rowcount == few:
            return False
    tx.execute(_AGENT, of_agent)
    return True


def _purge_messages(tx: Tx, agent_id: AgentId, most: int) -> int:
    """Deletes some messages; returns their number, or `most` when others may be left."""
    rows = tx.execute(_MESSAGES, {"of_agent": agent_id, "most": most}).all()
    ids, size = list[str](), 0
    for row in rows:
        if ids and size + row.size > BYTES:
            break
        ids.append(row.id)
        size += row.size
    if ids:
        tx.execute(_THESE_MESSAGES, {"ids": ids})
    return len(ids) if len(ids) == len(rows) < most else most
