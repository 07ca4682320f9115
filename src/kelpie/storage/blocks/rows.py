"""Conversion of memory blocks between rows and values: the columns, and the tags beside them.

A block whose row is damaged is `lost`, and that is logged.
"""

from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import BlockId, OrganizationId
from kelpie.core.memory.blocks import LOST, Block
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.tables import block_tags, blocks

TAG_SEPARATOR = "\x1f"
SUMMED = ("value", "label", "description", "limit", "read_only", "metadata")  # the fields that the checksum covers

TAGS = (
    sa.select(sa.func.aggregate_strings(block_tags.c.tag, TAG_SEPARATOR))
    .where(block_tags.c.block_id == blocks.c.id)
    .correlate(blocks)
    .scalar_subquery()
    .label("tags")
)


def to_row(block: Block) -> dict[str, Any]:
    """The columns of a block; its tags are rows of their own."""
    row = {field.name: getattr(block, field.name) for field in fields(Block) if field.name != "tags"}
    return row | {"metadata": dict(block.metadata), "checksum": sum_of(block)}


def sum_of(block: Any) -> int:
    """The checksum of a block, or of the row of one."""
    return checksum(*(getattr(block, name) for name in SUMMED))


def from_row(row: sa.Row[Any]) -> Block:
    """The block of a row that was read with `TAGS`."""
    lost = row.checksum is not None and row.checksum != sum_of(row)
    if lost:
        report("block", row.id)
    return Block(
        id=BlockId(row.id),
        label=row.label,
        value=LOST if lost else row.value,
        created_at=row.created_at,
        updated_at=row.updated_at,
        limit=row.limit,
        description=None if lost else row.description,
        read_only=row.read_only,
        metadata={} if lost else row.metadata,
        tags=tuple(sorted(row.tags.split(TAG_SEPARATOR))) if row.tags else (),
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
