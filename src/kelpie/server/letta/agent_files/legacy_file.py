"""Agent files of the first format: one agent with its tools, blocks and messages inside. Letta's API describes them as
`AgentSchema`.

They are converted to the present format, whose fields say the same. Of the group of an agent such a file has only the
id; the note about that is under `NOTES`.
"""

from typing import Any, cast

from kelpie.core.errors import InvalidInput

NOTES = "notes"

_MARKS = ("core_memory", "in_context_message_indices")
_NO_GROUP = (
    "The agent was in a group, which a file of the legacy format does not contain. It was imported without the group; "
    "set enable_sleeptime on the agent if it had a sleeptime agent."
)
_SAME = ("agent_type", "description", "embedding_config", "llm_config", "message_buffer_autoclear", "name", "system")


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """A file of the first format in the present one. Raises InvalidInput for anything else."""
    if not any(mark in old for mark in _MARKS):
        raise InvalidInput(
            "file.agents", "is missing: this is neither an agent file nor one of the legacy format (AgentSchema)"
        )
    messages = [{**row, "id": f"message-{n}"} for n, row in enumerate(_rows(old, "messages"))]
    blocks = [{**row, "id": f"block-{n}"} for n, row in enumerate(_rows(old, "core_memory"))]
    tools = [{**row, "id": f"tool-{n}"} for n, row in enumerate(_rows(old, "tools"))]
    for block in blocks:
        block["metadata"] = block.get("metadata_")
    agent: dict[str, Any] = {name: old.get(name) for name in _SAME}
    agent |= {
        "id": "agent-0",
        "metadata": old.get("metadata_"),
        "tags": [row.get("tag") for row in _rows(old, "tags")],
        "tool_rules": old.get("tool_rules") or [],
        "tool_exec_environment_variables": {
            str(row.get("key")): row.get("value") or "" for row in _rows(old, "tool_exec_environment_variables")
        },
        "tool_ids": [tool["id"] for tool in tools],
        "block_ids": [block["id"] for block in blocks],
        "messages": messages,
        "in_context_message_ids": _context(old.get("in_context_message_indices"), len(messages)),
    }
    notes = [_NO_GROUP] if old.get("multi_agent_group") else []
    return {"agents": [agent], "blocks": blocks, "tools": tools, NOTES: notes}


def _rows(old: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: Any = old.get(name) or []
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in cast("list[Any]", found)):
        raise InvalidInput(f"file.{name}", "must be a list of objects")
    return cast("list[dict[str, Any]]", found)


def _context(given: Any, count: int) -> list[str]:
    indices = cast("list[Any]", given) if isinstance(given, list) else []
    if not all(isinstance(index, int) and 0 <= index < count for index in indices):
        raise InvalidInput("file.in_context_message_indices", "must be positions in the list of messages")
    return [f"message-{index}" for index in indices]
