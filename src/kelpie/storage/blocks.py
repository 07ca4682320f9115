"""Memory blocks as rows, and which agents carry them.

A block may hang on many agents, so whoever changes one gets back every agent that must see the change. The label is
part of the key of an attachment: an agent never has two blocks of one label, and a relabel moves the attachments along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.blocks import Block, BlockQuery, NewBlock
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import AgentId, BlockId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage import agents as agent_rows
from kelpie.storage import paging
from kelpie.storage.block_filters import matching
from kelpie.storage.tables import agent_blocks, agents, block_tags, blocks, conversation_blocks, conversations
from kelpie.world.database import Tx

_TAG_SEPARATOR = "\x1f"
_ID_CHUNK = 5000  # how many ids go into one IN list
_CHANGEABLE = frozenset(field.name for field in fields(NewBlock))

_TAGS = (
    sa.select(sa.func.aggregate_strings(block_tags.c.tag, _TAG_SEPARATOR))
    .where(block_tags.c.block_id == blocks.c.id)
    .correlate(blocks)
    .scalar_subquery()
    .label("tags")
)
_ALL = sa.select(blocks, _TAGS)
_ONE = _ALL.where(blocks.c.id == sa.bindparam("of_block"))
_ONE_LOCKED = _ONE.with_for_update(of=blocks)
_INSERT = sa.insert(blocks)
_INSERT_TAG = sa.insert(block_tags)
_DELETE_TAGS = sa.delete(block_tags).where(block_tags.c.block_id == sa.bindparam("of_block"))
_DELETE = sa.delete(blocks).where(blocks.c.id == sa.bindparam("of_block"))
_COUNT = (
    sa.select(sa.func.count()).select_from(blocks).where(blocks.c.organization_id == sa.bindparam("of_organization"))
)


def _to_row(block: Block) -> dict[str, Any]:
    row = {field.name: getattr(block, field.name) for field in fields(Block) if field.name != "tags"}
    return row | {"metadata": dict(block.metadata)}


def _from_row(row: sa.Row[Any]) -> Block:
    return Block(
        id=BlockId(row.id),
        label=row.label,
        value=row.value,
        created_at=row.created_at,
        updated_at=row.updated_at,
        limit=row.limit,
        description=row.description,
        read_only=row.read_only,
        metadata=row.metadata,
        tags=tuple(sorted(row.tags.split(_TAG_SEPARATOR))) if row.tags else (),
        hidden=row.hidden,
        project_id=row.project_id,
        template_name=row.template_name,
        is_template=row.is_template,
        template_id=row.template_id,
        base_template_id=row.base_template_id,
        deployment_id=row.deployment_id,
        entity_id=row.entity_id,
        preserve_on_migration=row.preserve_on_migration,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
        version=row.version,
    )


def insert(tx: Tx, block: Block) -> None:
    """Writes a new block with its tags. Raises InvalidInput for a tag that cannot be stored."""
    tx.execute(_INSERT, _to_row(block))
    _add_tags(tx, block.id, block.tags)


def _add_tags(tx: Tx, block_id: BlockId, tags: Sequence[str]) -> None:
    if any(not tag or _TAG_SEPARATOR in tag for tag in tags):
        raise InvalidInput("tags", "a tag must be text without control characters; remove the empty or broken one")
    if tags:
        tx.execute(_INSERT_TAG, [{"block_id": block_id, "tag": tag} for tag in dict.fromkeys(tags)])


def get(tx: Tx, block_id: BlockId, *, lock: bool = False) -> Block:
    """The block; with `lock`, nobody else may change it until the transaction ends. Raises NotFound."""
    row = tx.execute(_ONE_LOCKED if lock else _ONE, {"of_block": block_id}).first()
    if row is None:
        raise NotFound("Block", block_id)
    return _from_row(row)


def count(tx: Tx, organization: OrganizationId, query: BlockQuery) -> int:
    """How many blocks match, on all pages together."""
    return int(tx.execute(_COUNT.where(*matching(query)), {"of_organization": organization}).scalar_one())


def select(tx: Tx, organization: OrganizationId, query: BlockQuery) -> list[Block]:
    """The blocks that match every filter given, on the page asked for."""
    found = _ALL.where(blocks.c.organization_id == organization, *matching(query))
    return [
        _from_row(row) for row in paging.page(tx, found, blocks, query.page, within={"organization_id": organization})
    ]


# --- changing -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _update_statement(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=blocks.c[name].type) for name in names}
    return sa.update(blocks).where(blocks.c.id == sa.bindparam("of_block")).values(new)


def update(
    tx: Tx, block_id: BlockId, changes: Mapping[str, Any], now: Micros, by: str | None
) -> tuple[Block, bool, tuple[AgentId, ...]]:
    """Applies changes by field name; gives the block, whether anything changed, and every agent that sees it.

    Raises NotFound, Conflict when an agent has the new label already, and InvalidInput for an unknown field.
    """
    for name in changes:
        if name not in _CHANGEABLE:
            raise InvalidInput(name, "is not a field of a block that can be changed")
    before = get(tx, block_id, lock=True)
    real = {name: value for name, value in changes.items() if _comparable(name, value) != getattr(before, name)}
    # Also when nothing changes: an edit whose answer was lost is sent again, and the carriers have not heard of it yet.
    affected = agents_seeing(tx, block_id)
    if not real:
        return before, False, affected
    if "label" in real:
        _relabel(tx, block_id, real["label"])
    if "tags" in real:
        tx.execute(_DELETE_TAGS, {"of_block": block_id})
        _add_tags(tx, block_id, real["tags"])
    columns = {name: value for name, value in real.items() if name != "tags"}
    columns |= {"updated_at": now, "last_updated_by_id": by, "version": before.version + 1}
    bound = {f"new_{name}": value for name, value in columns.items()}
    tx.execute(_update_statement(tuple(sorted(columns))), bound | {"of_block": block_id})
    return get(tx, block_id), True, affected


def _comparable(name: str, value: Any) -> Any:
    return tuple(sorted(set(value))) if name == "tags" else value


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


def _relabel(tx: Tx, block_id: BlockId, label: str) -> None:
    taken = tx.execute(_LABEL_TAKEN, {"of_block": block_id, "new_label": label}).scalar()
    if taken is not None:
        raise _label_conflict(taken, label)
    try:
        tx.execute(_MOVE_LABEL, {"of_block": block_id, "new_label": label})
    except IntegrityError as error:
        raise _label_conflict("an agent that carries this block", label) from error


def _label_conflict(agent: str, label: str) -> Conflict:
    return Conflict(f"{agent} already has a block with the label '{label}'; detach that one or use another label")


_DETACH_ALL = sa.delete(agent_blocks).where(agent_blocks.c.block_id == sa.bindparam("of_block"))


def delete(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Removes the block from everywhere and gives the agents that saw it. Raises NotFound."""
    get(tx, block_id, lock=True)
    affected = agents_seeing(tx, block_id)
    for statement in (_DETACH_ALL, _DELETE_TAGS, _DELETE):
        tx.execute(statement, {"of_block": block_id})
    return affected


# --- which agents carry which blocks --------------------------------------------------------------------------------

_LABEL = sa.select(blocks.c.label).where(blocks.c.id == sa.bindparam("of_block"))
_HOLDER_OF_LABEL = sa.select(agent_blocks.c.block_id).where(
    agent_blocks.c.agent_id == sa.bindparam("of_agent"), agent_blocks.c.label == sa.bindparam("of_label")
)
_ATTACH = sa.insert(agent_blocks)
_DETACH = sa.delete(agent_blocks).where(
    agent_blocks.c.agent_id == sa.bindparam("of_agent"), agent_blocks.c.block_id == sa.bindparam("of_block")
)
_CLEAR = sa.delete(agent_blocks).where(agent_blocks.c.agent_id == sa.bindparam("of_agent"))
_CARRIERS = (
    sa.select(agent_blocks.c.agent_id)
    .where(agent_blocks.c.block_id == sa.bindparam("of_block"))
    .order_by(agent_blocks.c.agent_id)
)
_SEEING = sa.union(
    sa.select(agent_blocks.c.agent_id).where(agent_blocks.c.block_id == sa.bindparam("of_block")),
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
_ATTACHED = (
    sa.select(agent_blocks.c.agent_id, blocks, _TAGS)
    .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
    .order_by(blocks.c.created_at, blocks.c.id)
)
_OF_AGENT = _ATTACHED.where(agent_blocks.c.agent_id == sa.bindparam("of_agent"))
_OF_AGENTS = _ATTACHED.where(agent_blocks.c.agent_id.in_(sa.bindparam("of_agents", expanding=True)))
_BY_LABEL = _OF_AGENT.where(agent_blocks.c.label == sa.bindparam("of_label"))
_BY_LABEL_LOCKED = _BY_LABEL.with_for_update(of=blocks)
_OF_THREAD = (
    sa.select(conversation_blocks.c.label.label("under"), blocks, _TAGS)
    .join(conversation_blocks, conversation_blocks.c.block_id == blocks.c.id)
    .where(conversation_blocks.c.conversation_id == sa.bindparam("of_conversation"))
    .order_by(conversation_blocks.c.label)
)
_OWN_BY_LABEL_LOCKED = _OF_THREAD.where(blocks.c.label == sa.bindparam("of_label")).with_for_update(of=blocks)


def attach(tx: Tx, agent_id: AgentId, block_id: BlockId) -> bool:
    """Hangs the block on the agent; False when it hung there already.

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
        raise _label_conflict(agent_id, label)
    try:
        tx.execute(_ATTACH, {"agent_id": agent_id, "label": label, "block_id": block_id})
    except IntegrityError as error:
        raise _label_conflict(agent_id, label) from error
    return True


def share(tx: Tx, block_id: BlockId, agent_ids: Sequence[AgentId]) -> tuple[AgentId, ...]:
    """Hangs a block that exists on agents as well, but for those that have another of its label; gives the others."""
    label = tx.execute(_LABEL, {"of_block": block_id}).scalar()
    free = [a for a in agent_ids if tx.execute(_HOLDER_OF_LABEL, {"of_agent": a, "of_label": label}).first() is None]
    for agent_id in free:
        attach(tx, agent_id, block_id)
    return tuple(free)


def give_to_new(tx: Tx, agent_id: AgentId, made: Sequence[Block]) -> None:
    """Writes new blocks, all of different labels, and hangs them on an agent that was just made."""
    if not made:
        return
    tx.execute(_INSERT, [_to_row(block) for block in made])
    for block in made:
        _add_tags(tx, block.id, block.tags)
    tx.execute(_ATTACH, [{"agent_id": agent_id, "label": block.label, "block_id": block.id} for block in made])


def detach(tx: Tx, agent_id: AgentId, block_id: BlockId) -> None:
    """Takes the block off the agent; the block itself stays. Raises NotFound when it does not hang there."""
    if tx.execute(_DETACH, {"of_agent": agent_id, "of_block": block_id}).rowcount == 0:
        raise NotFound("Block", block_id)


def replace_for_agent(tx: Tx, agent_id: AgentId, block_ids: Sequence[BlockId]) -> None:
    """Makes these the blocks of the agent and no others. Raises what `attach` raises."""
    tx.execute(_CLEAR, {"of_agent": agent_id})
    for block_id in dict.fromkeys(block_ids):
        attach(tx, agent_id, block_id)


def agents_with(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Every agent that carries the block."""
    return tuple(AgentId(row[0]) for row in tx.execute(_CARRIERS, {"of_block": block_id}))


def agents_seeing(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Every agent that carries the block, or sees it in one of its conversations."""
    return tuple(AgentId(row[0]) for row in tx.execute(_SEEING, {"of_block": block_id}))


def agents_page(tx: Tx, organization: OrganizationId, block_id: BlockId, page: Page) -> list[AgentId]:
    """The agents that carry the block, in the order and on the page asked for."""
    bound = {"of_block": block_id, "of_organization": organization}
    rows = paging.page(tx, _CARRIER_AGENTS, agents, page, bound, within={"organization_id": organization})
    return [AgentId(row[0]) for row in rows]


def of_agent(tx: Tx, agent_id: AgentId) -> list[Block]:
    """The blocks of one agent, oldest block first."""
    return [_from_row(row) for row in tx.execute(_OF_AGENT, {"of_agent": agent_id})]


def of_agents(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[AgentId, list[Block]]:
    """The blocks of many agents in one query; every agent asked for is in the answer."""
    found: dict[AgentId, list[Block]] = {agent_id: [] for agent_id in agent_ids}
    wanted = list(found)
    for start in range(0, len(wanted), _ID_CHUNK):
        for row in tx.execute(_OF_AGENTS, {"of_agents": wanted[start : start + _ID_CHUNK]}):
            found[row.agent_id].append(_from_row(row))
    return found


def seen(tx: Tx, agent_id: AgentId, conversation: str) -> tuple[list[Block], list[Block]]:
    """The blocks that a conversation of an agent sees, and those of the agent that it does not.

    Its own copies stand in the places of the blocks they were copied from; a copy whose original the agent no longer
    carries comes last.
    """
    own = {row.under: _from_row(row) for row in tx.execute(_OF_THREAD, {"of_conversation": conversation})}
    carried, hidden, shown = of_agent(tx, agent_id), list[Block](), list[Block]()
    for block in carried:
        copy = own.pop(block.label, None)
        shown.append(copy or block)
        if copy is not None:
            hidden.append(block)
    return [*shown, *own.values()], hidden


def own_by_label(tx: Tx, conversation: str, label: str) -> Block | None:
    """The copy with this label that only the conversation sees, held until the transaction ends, if there is one."""
    row = tx.execute(_OWN_BY_LABEL_LOCKED, {"of_conversation": conversation, "of_label": label}).first()
    return None if row is None else _from_row(row)


def by_label(tx: Tx, agent_id: AgentId, label: str, *, lock: bool = False) -> Block | None:
    """The agent's block of this label, if it has one."""
    row = tx.execute(_BY_LABEL_LOCKED if lock else _BY_LABEL, {"of_agent": agent_id, "of_label": label}).first()
    return None if row is None else _from_row(row)
