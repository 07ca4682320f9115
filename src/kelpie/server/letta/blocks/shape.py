"""A memory block as Letta's clients see it. Its author and last editor are stored but, as in Letta, not shown."""

from typing import Any

from kelpie.core.memory.blocks import Block


def block_shape(block: Block) -> dict[str, Any]:
    return {
        "value": block.value,
        "limit": block.limit,
        "project_id": block.project_id,
        "template_name": block.template_name,
        "is_template": block.is_template,
        "template_id": block.template_id,
        "base_template_id": block.base_template_id,
        "deployment_id": block.deployment_id,
        "entity_id": block.entity_id,
        "preserve_on_migration": block.preserve_on_migration,
        "label": block.label,
        "read_only": block.read_only,
        "description": block.description,
        "metadata": dict(block.metadata),
        "hidden": block.hidden,
        "id": block.id,
        "created_by_id": None,
        "last_updated_by_id": None,
        "tags": list(block.tags),
    }
