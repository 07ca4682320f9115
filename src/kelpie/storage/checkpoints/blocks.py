"""Memory blocks in a checkpoint: those attached to an agent, and the copies that only its conversations see.

A block that is attached to other agents too is attached again but not changed, unless the caller asks for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Change
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.memory.checkpoints import UnchangedItem
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import groups
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.storage.blocks.rows import to_row
from kelpie.storage.checkpoints.pieces import Piece, each_part, parts
from kelpie.storage.checkpoints.rows import columns_of, distinct, members, row, section, texts
from kelpie.storage.tables import blocks as table
from kelpie.storage.tables import conversation_blocks
from kelpie.world.database import Tx

WRITTEN, ATTACHED, LOOKED_UP = 50, 100, 500  # blocks of one piece, or of one query

_CHANGEABLE = tuple(field.name for field in fields(NewBlock))
_COLUMNS = columns_of(table, "organization_id", "checksum")
_HANG = sa.insert(conversation_blocks)
_STANDING = sa.select(table.c.id, table.c.organization_id, table.c.label).where(
    table.c.id.in_(sa.bindparam("ids", expanding=True))
)
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


def pieces(tx: Tx, target: Target, wanted: Sequence[Block]) -> tuple[list[UnchangedItem], list[Piece]]:
    """The writes that make these the agent's blocks, and what they leave unchanged.

    Raises Conflict for a label or an id that is taken.
    """
    left, changed, shared = list[UnchangedItem](), list[Block](), list[Block]()
    own = {target.agent_id, *groups.companions_of(tx, target.agent_id)}
    seen = block_attachments.agents_seeing_any(tx, [block.id for block in wanted])
    for block in wanted:
        others = seen.get(block.id, set()) - own
        if others and not target.overwrite_shared:
            row_ownership.block(tx, target.organization, block.id)
            left.append(UnchangedItem("block", block.id, block.label, len(others)))
            shared.append(block)
        else:
            changed.append(block)
    _require_own_labels(tx, target.agent_id, changed, shared)
    agent_id, attached = target.agent_id, block_attachments.ids_of_agent(tx, target.agent_id)
    return left, [
        *each_part(attached, ATTACHED, lambda tx, ids: block_attachments.detach_many(tx, agent_id, ids)),
        *_written(tx, target, changed),
        *each_part(changed, ATTACHED, lambda tx, some: block_attachments.attach_new(tx, agent_id, some)),
        *each_part(shared, WRITTEN, lambda tx, some: _attach(tx, agent_id, some)),
    ]


def _require_own_labels(tx: Tx, agent_id: AgentId, changed: Sequence[Block], shared: Sequence[Block]) -> None:
    """Raises Conflict when a shared block has got a label since that another block of the checkpoint has."""
    labels = {block.label for block in changed}
    for ids in parts([block.id for block in shared], LOOKED_UP):
        for found in tx.execute(_STANDING, {"ids": ids}):
            if found.label in labels:
                raise block_attachments.label_conflict(agent_id, found.label)
            labels.add(found.label)


def _attach(tx: Tx, agent_id: AgentId, some: Sequence[Block]) -> None:
    for block in some:
        block_attachments.attach(tx, agent_id, block.id)


def _written(tx: Tx, target: Target, wanted: Sequence[Block]) -> list[Piece]:
    """The writes of blocks as they were, anew those that are gone. Raises Conflict."""
    there: dict[str, str] = {}
    for ids in parts([block.id for block in wanted], LOOKED_UP):
        for found in tx.execute(_STANDING, {"ids": ids}):
            if found.organization_id != target.organization:
                raise Conflict(f"{found.id} cannot be created again with its id; nothing was restored")
            there[found.id] = found.label
    for block in wanted:
        if there.get(block.id, block.label) != block.label:
            block_attachments.require_label_free(tx, block.id, block.label, target.agent_id)
    new = [block for block in wanted if block.id not in there]
    old = [block for block in wanted if block.id in there]
    return [
        *each_part(new, ATTACHED, lambda tx, some: _make(tx, target, some), _size),
        *(Piece(len(some), partial(_change, target=target, some=some)) for some in parts(old, WRITTEN, _size)),
    ]


def _size(block: Block) -> int:
    return 2 * len(block.value)  # once more in its history


def _change(tx: Tx, target: Target, some: Sequence[Block]) -> Sequence[AgentId]:
    touched = list[AgentId]()
    for block in some:
        changes = {name: getattr(block, name) for name in _CHANGEABLE}
        touched += blocks.update(tx, block.id, changes, target.change)[2]
    return touched


def _make(tx: Tx, target: Target, some: Sequence[Block]) -> None:
    try:
        made = [replace(block, organization_id=target.organization) for block in some]
        blocks.insert(tx, made, target.change.by)
    except IntegrityError as error:
        raise Conflict(f"{some[0].id} cannot be created again with its id; nothing was restored") from error


def copies(tx: Tx, target: Target, conversation: str, wanted: Mapping[str, Block]) -> list[Piece]:
    """The writes that make these the copies that only the conversation sees, by the label that each replaces. Raises
    Conflict."""
    there = {each[0] for each in tx.execute(_COPIES, {"of_conversation": conversation})}
    gone = sorted(there - {block.id for block in wanted.values()})
    hung = [
        {"conversation_id": conversation, "label": label, "block_id": block.id}
        for label, block in wanted.items()
        if block.id not in there
    ]
    return [
        *each_part(gone, WRITTEN, lambda tx, ids: [blocks.delete(tx, BlockId(block_id)) for block_id in ids]),
        *_written(tx, target, list(wanted.values())),
        *each_part(hung, ATTACHED, lambda tx, rows: tx.execute(_HANG, rows)),
    ]
