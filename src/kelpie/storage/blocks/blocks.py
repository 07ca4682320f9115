"""Memory blocks as rows. All creations and changes go through here, and with it into the history.

A block may be attached to many agents, so every change returns the agents that must see it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import Conflict, Damaged, InvalidInput, NotFound
from kelpie.core.ids import AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Author, Change
from kelpie.core.memory.blocks import Block, BlockQuery, NewBlock
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import history as block_history
from kelpie.storage.blocks.filters import matching
from kelpie.storage.blocks.rows import SUMMED, TAG_SEPARATOR, TAGS, from_row, sum_of, to_row
from kelpie.storage.rows import paging
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import block_tags, blocks
from kelpie.world.database import Tx

_CHANGEABLE = frozenset(field.name for field in fields(NewBlock))

_ALL = sa.select(blocks, TAGS)
_OURS = _ALL.where(blocks.c.organization_id == sa.bindparam("of_organization"))
_ONE = _ALL.where(blocks.c.id == sa.bindparam("of_block"))
_ONE_LOCKED = _ONE.with_for_update(of=blocks)
_INSERT = Insert(blocks)
_INSERT_TAG = sa.insert(block_tags)
_DELETE_TAGS = sa.delete(block_tags).where(block_tags.c.block_id == sa.bindparam("of_block"))
_DELETE = sa.delete(blocks).where(blocks.c.id == sa.bindparam("of_block"))
_COUNT = (
    sa.select(sa.func.count()).select_from(blocks).where(blocks.c.organization_id == sa.bindparam("of_organization"))
)


def insert(tx: Tx, made: Sequence[Block], by: Author) -> None:
    """Writes new blocks with their tags. Raises InvalidInput for a tag that cannot be stored."""
    if not made:
        return
    _INSERT.run(tx, [to_row(block) for block in made])
    for block in made:
        _add_tags(tx, block.id, block.tags)
    block_history.begin(tx, made, by)


def give_to_new(tx: Tx, agent_id: AgentId, made: Sequence[Block], by: Author) -> None:
    """Writes new blocks, all of different labels, and attaches them to an agent that was just created."""
    insert(tx, made, by)
    block_attachments.attach_new(tx, agent_id, made)


def _add_tags(tx: Tx, block_id: BlockId, tags: Sequence[str]) -> None:
    if any(not tag or TAG_SEPARATOR in tag for tag in tags):
        raise InvalidInput("tags", "a tag must not be empty or contain control characters; correct or remove it")
    if tags:
        tx.execute(_INSERT_TAG, [{"block_id": block_id, "tag": tag} for tag in dict.fromkeys(tags)])


def get(tx: Tx, block_id: BlockId, *, lock: bool = False) -> Block:
    """The block; with `lock`, no other transaction may change it until this one ends. Raises NotFound."""
    row = tx.execute(_ONE_LOCKED if lock else _ONE, {"of_block": block_id}).first()
    if row is None:
        raise NotFound("Block", block_id)
    return from_row(row)


def require_whole(block: Block) -> Block:
    """Raises Damaged."""
    if block.lost:
        raise Damaged("Block", block.id, "Give it a new value, roll it back to a version of its history, or delete it.")
    return block


def count(tx: Tx, organization: OrganizationId, query: BlockQuery) -> int:
    """Number of blocks that match, on all pages together."""
    return int(tx.execute(_COUNT.where(*matching(query)), {"of_organization": organization}).scalar_one())


def select(tx: Tx, organization: OrganizationId, query: BlockQuery) -> list[Block]:
    """The blocks that match every filter, on the requested page."""
    plain = BlockQuery(templates_only=query.templates_only, show_hidden=query.show_hidden)
    found = _listed(plain) if query == replace(plain, page=query.page) else _OURS.where(*matching(query))
    bound = {"of_organization": organization}
    rows = paging.page(tx, found, blocks, query.page, bound, within={"organization_id": organization})
    return [from_row(row) for row in rows]


@lru_cache(maxsize=4)
def _listed(plain: BlockQuery) -> sa.Select[Any]:
    """The statement of a query without filters that have values."""
    return _OURS.where(*matching(plain))


# --- changing -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _update_statement(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=blocks.c[name].type) for name in names}
    return sa.update(blocks).where(blocks.c.id == sa.bindparam("of_block")).values(new)


def update(
    tx: Tx, block_id: BlockId, changes: Mapping[str, Any], change: Change, *, expected: int | None = None
) -> tuple[Block, bool, tuple[AgentId, ...]]:
    """Applies changes by field name; returns the block, whether anything changed, and every agent that sees it.

    Raises NotFound, InvalidInput for an unknown field, Conflict when an agent has the new label already, or when the
    block is not of the expected version, and Damaged when it is lost and gets no new value.
    """
    for name in changes:
        if name not in _CHANGEABLE:
            raise InvalidInput(name, "this field of a block cannot be changed")
    before = get(tx, block_id, lock=True)
    if expected is not None and before.version != expected:
        raise Conflict(
            f"{block_id} was changed: it has version {before.version}, but you expected {expected}. Read it again."
        )
    given = {name: _comparable(name, value) for name, value in changes.items()}
    real = {name: value for name, value in given.items() if value != getattr(before, name)}
    if before.lost:
        if "value" not in given:
            require_whole(before)
        real = {name: getattr(before, name) for name in SUMMED} | given
    # Also when nothing changes: a client repeats an edit whose answer was lost, and the agents are not notified yet.
    affected = block_attachments.agents_seeing(tx, block_id)
    if not real:
        return before, False, affected
    after = replace(before, **real, updated_at=change.at, last_updated_by_id=change.by.id, version=before.version + 1)
    _write(tx, after, real)
    block_history.record(tx, after, {name: value for name, value in real.items() if name != "value"}, change)
    return after, True, affected


def _write(tx: Tx, after: Block, real: Mapping[str, Any]) -> None:
    if "label" in real:
        block_attachments.relabel(tx, after.id, after.label)
    if "tags" in real:
        tx.execute(_DELETE_TAGS, {"of_block": after.id})
        _add_tags(tx, after.id, after.tags)
    names = sorted({*real, "updated_at", "last_updated_by_id", "version"} - {"tags"})
    bound = {f"new_{name}": getattr(after, name) for name in names} | {"new_checksum": sum_of(after)}
    tx.execute(_update_statement((*names, "checksum")), bound | {"of_block": after.id})


def _comparable(name: str, value: Any) -> Any:
    return tuple(sorted(set(value))) if name == "tags" else value


def delete(tx: Tx, block_id: BlockId) -> tuple[AgentId, ...]:
    """Deletes the block and its attachments, and returns the agents that saw it. Raises NotFound."""
    get(tx, block_id, lock=True)
    affected = block_attachments.agents_seeing(tx, block_id)
    tx.execute(_DELETE, {"of_block": block_id})
    return affected
