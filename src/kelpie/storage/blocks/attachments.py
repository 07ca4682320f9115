"""Attachments of blocks to agents, seen from either side.

The label is part of the key of an attachment: an agent never has two blocks of one label, and a relabel moves the
attachments along. A conversation may have copies of its own, which replace the agent's blocks of their labels.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, BlockId, OrganizationId
from kelpie.core.memory.blocks import Block
from kelpie.core.paging import Page
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.blocks.rows import TAGS, from_row
from kelpie.storage.rows import paging
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.rows.row_bytes import sizes_by_agent
from kelpie.storage.tables import agent_blocks, agents, blocks, conversation_blocks, conversations
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_ID_CHUNK = 5000  # ids per IN list
_OTHERS = 1024  # bytes of the other fields of a block

_LABEL = sa.select(blocks.c.label).where(blocks.c.id == sa.bindparam("of_block"))
_HOLDER_OF_LABEL = sa.select(agent_blocks.c.block_id).where(
    agent_blocks.c.agent_id == sa.bindparam("of_agent"), agent_blocks.c.label == sa.bindparam("of_label")
)
_ATTACH = Insert(agent_blocks)
_DETACH = sa.delete(agent_blocks).where(
    agent_blocks.c.agent_id == sa.bindparam("of_agent"), agent_blocks.c.block_id == sa.bindparam("of_block")
)
_CLEAR = sa.delete(agent_blocks).where(agent_blocks.c.agent_id == sa.bindparam("of_agent"))
_CARRIERS = (
    sa.select(agent_blocks.c.agent_id)
    .where(agent_blocks.c.block_id == sa.bindparam("of_block"), row_ownership.of_present_agent(agent_blocks.c.agent_id))
    .order_by(agent_blocks.c.agent_id)
)
_SEEING = sa.union(
    sa.select(agent_blocks.c.agent_id).where(
        agent_blocks.c.block_id == sa.bindparam("of_block"), row_ownership.of_present_agent(agent_blocks.c.agent_id)
    ),
    sa.select(conversations.c.agent_id)
    .join(conversation_blocks, conversation_blocks.c.conversation_id == conversations.c.id)
    .where(conversation_blocks.c.block_id == sa.bindparam("of_block")),
).order_by("agent_id")
_CARRIER_AGENTS = (
    sa.select(agents.c.id)
    .join(agent_blocks, agent_blocks.c.agent_id == agents.c.id)
    .where(agent_blocks.c.block_id == sa.bindparam("of_block"))
    .where(agents.c.organization_id == sa.bindparam("of_organization"))
)


def attach(tx: Tx, agent_id: AgentId, block_id: BlockId) -> bool:
    """Attaches the block to the agent; False when it was attached already.

    Raises NotFound for an unknown block or agent, and Conflict when the agent has another block of that label.
    """
    label = tx.execute(_LABEL, {"of_block": block_id}).scalar()
    if label is None:
        raise NotFound("Block", block_id)
    agent_rows.require(tx, agent_id)
    holder = tx.execute(_HOLDER_OF_LABEL, {"of_agent": agent_id, "of_label": label}).scalar()
    if holder == block_id:
        return False
    if holder is not None:
        raise label_conflict(agent_id, label)
    try:
        _ATTACH.run(tx, [{"agent_id": agent_id, "label": label, "block_id": block_id}])
    except IntegrityError as error:
        raise label_conflict(agent_id, label) from error
    return True


def share(tx: Tx, block_id: BlockId, agent_ids: Sequence[AgentId]) -> tuple[AgentId, ...]:
    """Attaches an existing block to more agents, except those that have another of its label; returns those
    attached."""
    label = tx.execute(_LABEL, {"of_block": block_id}).scalar()
    free = [a for a in agent_ids if tx.execute(_HOLDER_OF_LABEL, {"of_agent": a, "of_label": label}).first() is None]
    for agent_id in free:
        attach(tx, agent_id, block_id)
    return tuple(free)


def attach_new(tx: Tx, agent_id: AgentId, made: Sequence[Block]) -> None:
    """Attaches new blocks, all of different labels, to an agent that was just created."""
    if made:
        _ATTACH.run(tx, [{"agent_id": agent_id, "label": block.label, "block_id": block.id} for block in made])


def detach(tx: Tx, agent_id: AgentId, block_id: BlockId) -> None:
    """Detaches the block from the agent; the block itself stays. Raises NotFound when it is not attached."""
    if tx.execute(_DETACH, {"of_agent": agent_id, "of_block": block_id}).rowcount == 0:
        raise NotFound("Block", block_id)


def replace_for_agent(tx: Tx, agent_id: AgentId, block_ids: Sequence[BlockId]) -> None:
    """Makes these the only blocks of the agent. Raises what `attach` raises."""
    tx.execute(_CLEAR, {"of_agent": agent_id})
    for block_id in dict.fromkeys(block_ids):
        attach(tx, agent_id, block_id)


_DETACH_MANY = sa.delete(agent_blocks).where(
    agent_blocks.c.agent_id == sa.bindparam("of_agent"),
    agent_blocks.c.block_id.in_(sa.bindparam("ids", expanding=True)),
)
_IDS_OF_AGENT = sa.select(agent_blocks.c.block_id).where(agent_blocks.c.agent_id == sa.bindparam("of_agent"))


def ids_of_agent(tx: Tx, agent_id: AgentId) -> list[BlockId]:
    """The blocks that are attached to an agent, sorted."""
    return sorted(map(BlockId, tx.execute(_IDS_OF_AGENT, {"of_agent": agent_id}).scalars()))


def detach_many(tx: Tx, agent_id: AgentId, block_ids: Sequence[str]) -> None:
    """Detaches those of the blocks that are attached to the agent."""
    tx.execute(_DETACH_MANY, {"of_agent": agent_id, "ids": list(block_ids)})


def require_label_free(tx: Tx, block_id: BlockId, label: str, but: AgentId) -> None:
    """Raises Conflict when a block cannot get this label: an agent with it, other than `but`, has another of that
    label."""
    taken = tx.execute(_LABEL_TAKEN_BUT, {"of_block": block_id, "new_label": label, "but": but}).scalar()
    if taken is not None:
        raise label_conflict(taken, label)


def agents_with(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Every agent with the block attached."""
    return tuple(AgentId(row[0]) for row in tx.execute(_CARRIERS, {"of_block": block_id}))


def agents_seeing(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Every agent that has the block attached, or sees it in one of its conversations."""
    return tuple(AgentId(row[0]) for row in tx.execute(_SEEING, {"of_block": block_id}))


_SEEING_MANY = sa.union(
    sa.select(agent_blocks.c.block_id, agent_blocks.c.agent_id).where(
        agent_blocks.c.block_id.in_(sa.bindparam("ids", expanding=True)),
        row_ownership.of_present_agent(agent_blocks.c.agent_id),
    ),
    sa.select(conversation_blocks.c.block_id, conversations.c.agent_id)
    .join(conversations, conversation_blocks.c.conversation_id == conversations.c.id)
    .where(conversation_blocks.c.block_id.in_(sa.bindparam("ids", expanding=True))),
)


def agents_seeing_any(tx: Tx, block_ids: Sequence[str]) -> dict[str, set[str]]:
    """For each of the blocks that any agent sees, those agents."""
    found: dict[str, set[str]] = {}
    for start in range(0, len(block_ids), _ID_CHUNK):
        for block_id, agent_id in tx.execute(_SEEING_MANY, {"ids": list(block_ids[start : start + _ID_CHUNK])}):
            found.setdefault(block_id, set()).add(agent_id)
    return found


def agents_page(tx: Tx, organization: OrganizationId, block_id: BlockId, page: Page) -> list[AgentId]:
    """The agents with the block attached, in the requested order and on the requested page."""
    bound = {"of_block": block_id, "of_organization": organization}
    rows = paging.page(tx, _CARRIER_AGENTS, agents, page, bound, within={"organization_id": organization})
    return [AgentId(row[0]) for row in rows]


_OWN_COPY = sa.select(conversation_blocks.c.label).where(conversation_blocks.c.block_id == sa.bindparam("of_block"))
_MOVE_LABEL = (
    sa.update(agent_blocks)
    .where(agent_blocks.c.block_id == sa.bindparam("of_block"))
    .values(label=sa.bindparam("new_label"))
)
_mine, _other = agent_blocks.alias("mine"), agent_blocks.alias("other")
_LABEL_TAKEN = (
    sa.select(_other.c.agent_id)
    .join(_mine, _mine.c.agent_id == _other.c.agent_id)
    .where(_mine.c.block_id == sa.bindparam("of_block"), _other.c.block_id != sa.bindparam("of_block"))
    .where(_other.c.label == sa.bindparam("new_label"))
    .order_by(_other.c.agent_id)
    .limit(1)
)
_LABEL_TAKEN_BUT = _LABEL_TAKEN.where(_other.c.agent_id != sa.bindparam("but"))


def relabel(tx: Tx, block_id: BlockId, label: str) -> None:
    """Moves the attachments of a block to its new label. Raises Conflict when an agent has another of that label, and
    for a conversation's own copy, which is found by the label of what it replaces."""
    if tx.execute(_OWN_COPY, {"of_block": block_id}).first() is not None:
        raise Conflict(f"{block_id} is a conversation's own copy of a block, so its label cannot be changed.")
    taken = tx.execute(_LABEL_TAKEN, {"of_block": block_id, "new_label": label}).scalar()
    if taken is not None:
        raise label_conflict(taken, label)
    try:
        tx.execute(_MOVE_LABEL, {"of_block": block_id, "new_label": label})
    except IntegrityError as error:
        raise label_conflict("an agent that has this block", label) from error


def label_conflict(agent: str, label: str) -> Conflict:
    """The error for a second block of a label."""
    return Conflict(f"{agent} already has a block with the label '{label}'; detach that one or use another label")


# --- attached blocks ------------------------------------------------------------------------------------------------

_ATTACHED = (
    sa.select(blocks, TAGS, agent_blocks.c.agent_id)
    .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
    .order_by(blocks.c.created_at, blocks.c.id)
)
_OF_AGENT = _ATTACHED.where(agent_blocks.c.agent_id == sa.bindparam("of_agent"))
_OF_ONE = Prepared(_OF_AGENT)
_OF_AGENTS = _ATTACHED.where(agent_blocks.c.agent_id.in_(sa.bindparam("of_agents", expanding=True)))
_BY_LABEL = _OF_AGENT.where(agent_blocks.c.label == sa.bindparam("of_label"))
_BY_LABEL_LOCKED = _BY_LABEL.with_for_update(of=blocks)
_OF_THREAD = (
    sa.select(blocks, TAGS, conversation_blocks.c.label.label("under"))
    .join(conversation_blocks, conversation_blocks.c.block_id == blocks.c.id)
    .where(conversation_blocks.c.conversation_id == sa.bindparam("of_conversation"))
    .order_by(conversation_blocks.c.label)
)
_OWN_BY_LABEL_LOCKED = _OF_THREAD.where(blocks.c.label == sa.bindparam("of_label")).with_for_update(of=blocks)


def of_agent(tx: Tx, agent_id: AgentId) -> list[Block]:
    """The blocks of one agent, oldest block first."""
    return [from_row(row) for row in _OF_ONE.rows(tx, {"of_agent": agent_id})]


def of_agents(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[AgentId, list[Block]]:
    """The blocks of many agents in one query; every requested agent is in the answer."""
    if len(agent_ids) == 1:
        return {agent_ids[0]: of_agent(tx, agent_ids[0])}
    found: dict[AgentId, list[Block]] = {agent_id: [] for agent_id in agent_ids}
    wanted = list(found)
    for start in range(0, len(wanted), _ID_CHUNK):
        for row in tx.execute(_OF_AGENTS, {"of_agents": wanted[start : start + _ID_CHUNK]}):
            found[row.agent_id].append(from_row(row))
    return found


_BYTES = (
    sa.func.length(blocks.c.value) + sa.func.coalesce(sa.func.length(sa.cast(blocks.c.metadata, sa.Text)), 0) + _OTHERS
)
_SIZES = (
    sa.select(agent_blocks.c.agent_id, sa.func.sum(_BYTES))
    .join(blocks, blocks.c.id == agent_blocks.c.block_id)
    .where(agent_blocks.c.agent_id.in_(sa.bindparam("of_agents", expanding=True)))
    .group_by(agent_blocks.c.agent_id)
)


def sizes_of_agents(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[AgentId, int]:
    """The approximate size in bytes of the blocks of each agent; agents without blocks are left out."""
    return sizes_by_agent(tx, _SIZES, agent_ids, _ID_CHUNK)


def seen(tx: Tx, agent_id: AgentId, conversation: str) -> tuple[list[Block], list[Block]]:
    """The blocks that a conversation of an agent sees, and those of the agent that it does not.

    Its own copies are listed in the positions of the blocks they were copied from; a copy whose original is no longer
    attached to the agent comes last.
    """
    own = {row.under: from_row(row) for row in tx.execute(_OF_THREAD, {"of_conversation": conversation})}
    carried, hidden, shown = of_agent(tx, agent_id), list[Block](), list[Block]()
    for block in carried:
        copy = own.pop(block.label, None)
        shown.append(copy or block)
        if copy is not None:
            hidden.append(block)
    return [*shown, *own.values()], hidden


def shown(tx: Tx, agent_id: AgentId, conversation: str | None) -> list[Block]:
    """The blocks in the prompt of a conversation; None is the agent's default conversation."""
    return seen(tx, agent_id, conversation)[0] if conversation else of_agent(tx, agent_id)


def own_by_label(tx: Tx, conversation: str, label: str) -> Block | None:
    """The copy with this label that only the conversation sees, locked until the transaction ends, if it exists."""
    row = tx.execute(_OWN_BY_LABEL_LOCKED, {"of_conversation": conversation, "of_label": label}).first()
    return None if row is None else from_row(row)


def by_label(tx: Tx, agent_id: AgentId, label: str, *, lock: bool = False) -> Block | None:
    """The agent's block of this label, if it has one."""
    row = tx.execute(_BY_LABEL_LOCKED if lock else _BY_LABEL, {"of_agent": agent_id, "of_label": label}).first()
    return None if row is None else from_row(row)
