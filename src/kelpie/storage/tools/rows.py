"""Conversion between a tool and its row."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from kelpie.core.ids import OrganizationId, ToolId
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.storage.tables import tools

_COLUMNS = tuple(tools.c.keys())
_in_order = itemgetter(*(field.name for field in fields(Tool)))


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


def from_row(row: Sequence[Any]) -> Tool:
    """The tool of a row whose statement selects the columns of tools before anything else."""
    values = dict(zip(_COLUMNS, row, strict=False))  # a column of a row by its name costs ten times as much
    values["id"] = ToolId(values["id"])
    values["organization_id"] = OrganizationId(values["organization_id"])
    values["tool_type"] = ToolType(values["tool_type"])
    values["tags"] = tuple(values["tags"])
    values["pip_requirements"] = _requirements(values["pip_requirements"])
    values["npm_requirements"] = _requirements(values["npm_requirements"])
    return Tool(*_in_order(values))
