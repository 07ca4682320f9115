"""Conversion between a tool and its row."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId, ToolId
from kelpie.core.tools.tools import Tool, ToolType


def to_row(tool: Tool) -> dict[str, Any]:
    return {field.name: to_column(getattr(tool, field.name)) for field in fields(Tool)}


def to_column(value: Any) -> Any:
    """The value as plain lists and dicts, for a JSON column."""
    if isinstance(value, ToolType):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_column(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [to_column(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _requirements(data: list[dict[str, Any]] | None) -> tuple[Mapping[str, Any], ...] | None:
    return None if data is None else tuple(data)


def from_row(row: sa.Row[Any]) -> Tool:
    return Tool(
        id=ToolId(row.id),
        name=row.name,
        tool_type=ToolType(row.tool_type),
        json_schema=row.json_schema,
        created_at=row.created_at,
        updated_at=row.updated_at,
        description=row.description,
        source_type=row.source_type,
        source_code=row.source_code,
        args_json_schema=row.args_json_schema,
        tags=tuple(row.tags),
        return_char_limit=row.return_char_limit,
        pip_requirements=_requirements(row.pip_requirements),
        npm_requirements=_requirements(row.npm_requirements),
        default_requires_approval=row.default_requires_approval,
        enable_parallel_execution=row.enable_parallel_execution,
        metadata=row.metadata,
        project_id=row.project_id,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
        version=row.version,
        sandbox=row.sandbox,
    )
