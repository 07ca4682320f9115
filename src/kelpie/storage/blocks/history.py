"""The history of blocks as rows: each version of a block once, written in the transaction that makes it.

Only `blocks` writes here, so every change of a block is recorded. Old versions are deleted a few at a time; what is
read is cut to the bound exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import Damaged, NoSuchVersion
from kelpie.core.ids import BlockId
from kelpie.core.memory.block_history import Author, AuthorKind, BlockVersion, Change
from kelpie.core.memory.blocks import Block
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import block_history
from kelpie.world.database import Tx

_SWEEP_EVERY = 16  # versions, so that most changes cost one statement here and not two

_H = block_history.c
_SUMMED = tuple(str(name) for name in _H.keys() if name not in ("value", "checksum", "value_checksum"))  # noqa: SIM118
_INSERT = Insert(block_history)
_SWEEP = sa.delete(block_history).where(_H.block_id == sa.bindparam("of_block"), _H.version <= sa.bindparam("up_to"))
_LISTED = (
    sa.select(*(column for column in block_history.c if column.key != "value"), sa.func.length(_H.value).label("chars"))
    .where(_H.block_id == sa.bindparam("of_block"))
    .where(_H.version > sa.bindparam("oldest"), _H.version < sa.bindparam("before"))
    .order_by(_H.version.desc())
    .limit(sa.bindparam("most"))
)
_ONE = sa.select(block_history, sa.func.length(_H.value).label("chars")).where(
    _H.block_id == sa.bindparam("of_block"), _H.version == sa.bindparam("of_version")
)


def begin(tx: Tx, made: Sequence[Block], by: Author) -> None:
    """Records new blocks."""
    _INSERT.run(tx, [_row(block, _initial_fields(block), by, block.created_at) for block in made])


def record(tx: Tx, block: Block, fields: Mapping[str, Any], change: Change) -> None:
    """Records a block after a change of these fields beside its value."""
    _INSERT.run(tx, [_row(block, fields, change.by, change.at, change.restores)])
    if block.version % _SWEEP_EVERY == 0 and block.version > change.kept:
        tx.execute(_SWEEP, {"of_block": block.id, "up_to": block.version - change.kept})


def select(tx: Tx, block: Block, kept: int, before: int | None, limit: int) -> list[BlockVersion]:
    """The stored versions, the newest first and without their values; with a version, only those before it."""
    bound = {"oldest": block.version - kept, "before": before or block.version + 1, "most": limit}
    return [_from_row(row) for row in tx.execute(_LISTED, {"of_block": block.id, **bound})]


def get(tx: Tx, block: Block, version: int, kept: int) -> BlockVersion:
    """One version with its value. Raises NotFound, also for one that is no longer stored, or Damaged."""
    row = tx.execute(_ONE, {"of_block": block.id, "of_version": version}).first()
    if row is None or version <= block.version - kept:
        raise NoSuchVersion(block.id, version, max(1, block.version - kept + 1), block.version)
    found = _from_row(row, row.value)
    if not is_whole(row):
        raise Damaged("Version", f"{version} of {block.id}", "Choose another version.")
    return found


def is_whole(row: Any) -> bool:
    """Checks whether a row, its value included, matches its checksum."""
    return _is_recorded(row) and row.value_checksum in (None, checksum(row.value))


def _is_recorded(row: Any) -> bool:
    return row.checksum in (None, checksum(*(getattr(row, name) for name in _SUMMED)))


def _initial_fields(block: Block) -> dict[str, Any]:
    """The fields of a new block beside its value that differ from the defaults."""
    names = ("label", "limit", "description", "read_only", "metadata", "tags", "hidden", "project_id", "template_name")
    return {name: value for name in names if (value := getattr(block, name)) not in (None, False, (), {})}


def _row(block: Block, fields: Mapping[str, Any], by: Author, at: int, restores: int | None = None) -> dict[str, Any]:
    row = {
        "block_id": block.id,
        "version": block.version,
        "fields": dict(fields),
        "at": at,
        "author": by.kind.value,
        "author_id": by.id,
        "key_id": by.key_id,
        "run_id": by.run_id,
        "step_id": by.step_id,
        "tool": by.tool,
        "restores": restores,
    }
    sums = {"checksum": checksum(*row.values()), "value_checksum": checksum(block.value)}
    return row | {"value": block.value, **sums}


def _from_row(row: sa.Row[Any], value: str = "") -> BlockVersion:
    if not _is_recorded(row):
        report("version of a block", f"{row.version} of {row.block_id}")
        return BlockVersion(
            BlockId(row.block_id), row.version, 0, Author(AuthorKind.unknown), row.chars, value=value, lost=True
        )
    return BlockVersion(
        block_id=BlockId(row.block_id),
        version=row.version,
        at=row.at,
        by=Author(AuthorKind(row.author), row.author_id, row.key_id, row.run_id, row.step_id, row.tool),
        chars=row.chars,
        fields=row.fields,
        restores=row.restores,
        value=value,
    )
