"""Memory blocks in a checkpoint: those attached to an agent, and the copies that only its conversations see.

A block that is attached to other agents too is attached again but not changed, unless the caller asks for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Change
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.memory.checkpoints import UnchangedItem
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import groups
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.blocks.rows import to_row
from kelpie.storage.checkpoints.rows import columns_of, distinct, members, row, section, texts
from kelpie.storage.tables import blocks as table
from kelpie.storage.tables import conversation_blocks
from kelpie.world.database import Tx

_CHANGEABLE = tuple(field.name for field in fields(NewBlock))
_COLUMNS = columns_of(table, "organization_id", "checksum")
_HANG = sa.insert(conversation_blocks)
_COPIES = sa.select(conversation_blocks.c.block_id).where(
    conversation_blocks.c.conversation_id == sa.bindparam("of_conversation")
)


@dataclass(frozen=True, slots=True)
class Target:
    """The agent whose memory is restored, the author, and whether items shared with other agents are changed too."""

    agent_id: AgentId
    organization: OrganizationId
    change: Change
    overwrite_shared: bool = False


def take(block: Block) -> dict[str, Any]:
    """A block in the form of the document. Raises Damaged: a damaged row must not be saved as if it were whole."""
    blocks.require_whole(block)
    return {name: value for name, value in to_row(block).items() if name in _COLUMNS} | {"tags": list(block.tags)}


def take_all(tx: Tx, agent_id: AgentId) -> list[dict[str, Any]]:
    return [take(block) for block in block_attachments.of_agent(tx, agent_id)]


def read(data: Any, where: str) -> Block:
    """The block of a document. Raises InvalidInput."""
    given = members(data, where, (*_COLUMNS, "tags"))
    values = row(table, {name: given[name] for name in _COLUMNS}, where, _COLUMNS)
    metadata = members(values["metadata"], f"{where}.metadata", values["metadata"] or ())
    tags = tuple(sorted(set(texts(given["tags"], f"{where}.tags"))))
    whole: dict[str, Any] = {**values, "id": BlockId.parse(values["id"]), "metadata": metadata, "tags": tags}
    return Block(**whole)


def read_all(memory: Mapping[str, Any]) -> list[Block]:
    """Raises InvalidInput."""
    found = [read(data, f"memory.blocks[{number}]") for number, data in enumerate(section(memory, "blocks"))]
    for name in ("id", "label"):
        distinct(({"key": getattr(block, name)} for block in found), lambda each: each["key"], "memory.blocks")
    return found


def put_all(tx: Tx, target: Target, wanted: Sequence[Block]) -> tuple[list[UnchangedItem], list[AgentId]]:
    """Makes these the agent's blocks; returns what was left unchanged, and every agent that must reload.

    Raises Conflict for a label or an id that is taken.
    """
    left, touched = list[UnchangedItem](), [target.agent_id]
    own = {target.agent_id, *groups.companions_of(tx, target.agent_id)}
    block_attachments.replace_for_agent(tx, target.agent_id, ())
    for block in wanted:
        others = [each for each in block_attachments.agents_seeing(tx, block.id) if each not in own]
        if others and not target.overwrite_shared:
            row_ownership.block(tx, target.organization, block.id)
            left.append(UnchangedItem("block", block.id, block.label, len(others)))
        else:
            touched += put(tx, target, block)
    for block in wanted:
        block_attachments.attach(tx, target.agent_id, block.id)
    return left, touched


def put(tx: Tx, target: Target, block: Block) -> Sequence[AgentId]:
    """Writes a block as it was, anew if it is gone; returns every agent that sees it. Raises Conflict."""
    try:
        row_ownership.block(tx, target.organization, block.id)
    except NotFound:
        return _make(tx, target, block)
    changes = {name: getattr(block, name) for name in _CHANGEABLE}
    return blocks.update(tx, block.id, changes, target.change)[2]


def _make(tx: Tx, target: Target, block: Block) -> Sequence[AgentId]:
    try:
        blocks.insert(tx, (replace(block, organization_id=target.organization),), target.change.by)
    except IntegrityError as error:
        raise Conflict(f"{block.id} cannot be created again with its id; nothing was restored") from error
    return ()


def put_copies(tx: Tx, target: Target, conversation: str, wanted: Mapping[str, Block]) -> None:
    """Makes these the copies that only the conversation sees, by the label that each replaces. Raises Conflict."""
    there = {each[0] for each in tx.execute(_COPIES, {"of_conversation": conversation})}
    for block_id in sorted(there - {block.id for block in wanted.values()}):
        blocks.delete(tx, BlockId(block_id))
    for label, block in wanted.items():
        put(tx, target, block)
        if block.id not in there:
            tx.execute(_HANG, {"conversation_id": conversation, "label": label, "block_id": block.id})
