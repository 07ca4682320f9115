"""A tool as Letta's clients see it."""

from collections.abc import Mapping
from typing import Any

from kelpie.core.tools.tools import Tool, ToolHit
from kelpie.server.http.match_reasons import matched_shape


def tool_shape(tool: Tool) -> dict[str, Any]:
    return {
        "id": tool.id,
        "tool_type": tool.tool_type,
        "description": tool.description,
        "source_type": tool.source_type,
        "name": tool.name,
        "tags": list(tool.tags),
        "source_code": tool.source_code,
        "json_schema": dict(tool.json_schema),
        "args_json_schema": None if tool.args_json_schema is None else dict(tool.args_json_schema),
        "return_char_limit": tool.return_char_limit,
        "pip_requirements": _dicts(tool.pip_requirements),
        "npm_requirements": _dicts(tool.npm_requirements),
        "default_requires_approval": tool.default_requires_approval,
        "enable_parallel_execution": tool.enable_parallel_execution,
        "created_by_id": tool.created_by_id,
        "last_updated_by_id": tool.last_updated_by_id,
        "metadata_": dict(tool.metadata or {}),
        "project_id": tool.project_id,
        "kelpie_sandbox": dict(tool.sandbox),
    }


def hit_shape(hit: ToolHit) -> dict[str, Any]:
    """A tool in search results, with its ranks; without a query it has none."""
    return {
        "tool": tool_shape(hit.tool),
        "embedded_text": hit.text,
        "fts_rank": hit.hit.words_rank if hit.hit else None,
        "vector_rank": hit.hit.meaning_rank if hit.hit else None,
        "combined_score": hit.hit.score if hit.hit else 0.0,
        **matched_shape(hit.hit),
    }


def _dicts(items: tuple[Mapping[str, Any], ...] | None) -> list[dict[str, Any]] | None:
    return None if items is None else [dict(item) for item in items]
