"""Conversion of memory blocks between rows and values: the columns, and the tags beside them.

A block whose row is damaged is `lost`, and that is logged.
"""

from dataclasses import fields
from operator import itemgetter
from typing import Any, cast

import sqlalchemy as sa

from kelpie.core.ids import BlockId, OrganizationId
from kelpie.core.memory.blocks import LOST, Block
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.tables import block_tags, blocks

TAG_SEPARATOR = "\x1f"
SUMMED = ("value", "label", "description", "limit", "read_only", "metadata")  # the fields that the checksum covers

# As a parameter the separator would be added to the statement anew each time.
_SEPARATOR = cast("str", sa.literal_column(f"'{TAG_SEPARATOR}'", sa.String()))
TAGS = (
    sa.select(sa.func.aggregate_strings(block_tags.c.tag, _SEPARATOR))
    .where(block_tags.c.block_id == blocks.c.id)
    .correlate(blocks)
    .scalar_subquery()
    .label("tags")
)


_COLUMNS = (*blocks.c.keys(), TAGS.name)
_STORED = tuple(field.name for field in fields(Block) if field.name != "tags")
_summed = itemgetter(*SUMMED)
_in_order = itemgetter(*(field.name for field in fields(Block)))


def to_row(block: Block) -> dict[str, Any]:
    """The columns of a block; its tags are rows of their own."""
    row = {name: getattr(block, name) for name in _STORED}
    return row | {"metadata": dict(block.metadata), "checksum": sum_of(block)}


def sum_of(block: Any) -> int:
    """The checksum of a block, or of the row of one."""
    return checksum(*(getattr(block, name) for name in SUMMED))


def from_row(row: sa.Row[Any]) -> Block:
    """The block of a row whose statement selects the columns of blocks and then `TAGS`, before anything else."""
    values = dict(zip(_COLUMNS, row, strict=False))  # a column of a row by its name costs ten times as much
    stored, tags = values.pop("checksum"), values["tags"]
    lost = stored is not None and stored != checksum(*_summed(values))
    if lost:
        report("block", values["id"])
        values |= {"value": LOST, "description": None, "metadata": {}}
    values["id"] = BlockId(values["id"])
    values["organization_id"] = OrganizationId(values["organization_id"])
    values["tags"] = tuple(sorted(tags.split(TAG_SEPARATOR))) if tags else ()
    return Block(*_in_order(values))
