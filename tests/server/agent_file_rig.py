"""Agent files for tests: small ones of the shape that Letta 0.16 writes, and what two files have in common."""

import json
from typing import Any

CALL = {"id": "call_1", "function": {"name": "price_of", "arguments": '{"item": "tea"}'}, "type": "function"}
SOURCE = (
    'def price_of(item: str) -> str:\n    """Price.\n\n    Args:\n        item: the item\n    """\n    return item\n'
)


def packed(message: Any, status: str = "OK") -> str:
    return json.dumps({"status": status, "message": message, "time": "2026-11-15 02:39:29 AM UTC+0000"})


def message(reference: str, role: str, text: str | None = None, **fields: Any) -> dict[str, Any]:
    content = [] if text is None else [{"type": "text", "text": text, "signature": None}]
    return {
        "type": "message",
        "id": reference,
        "agent_id": "agent-0",
        "role": role,
        "content": content,
        "created_at": "2026-11-15T02:39:14.095365+00:00",
        "tool_calls": None,
        "tool_returns": [],
        "approvals": [],
        **fields,
    }


def returned(reference: str, text: Any, call_id: str = "call_1", status: str = "success") -> dict[str, Any]:
    said = packed(text, "OK" if status == "success" else "Failed")
    given = {"tool_call_id": call_id, "status": status, "stdout": None, "stderr": None, "func_response": said}
    return message(reference, "tool", said, name="price_of", tool_call_id=call_id, tool_returns=[given])


def history() -> list[dict[str, Any]]:
    """A system message, a question, a call that was approved, its result, an answer, and a call that waits."""
    approved = [{"type": "approval", "tool_call_id": "call_1", "approve": True, "reason": None}]
    waits = {**CALL, "id": "call_2"}
    return [
        message("message-0", "system", "old instructions of another server"),
        message("message-1", "user", "what does tea cost?"),
        message("message-2", "approval", tool_calls=[CALL], tool_call_id="call_1"),
        message("message-3", "approval", approvals=approved),
        returned("message-4", "3 EUR"),
        message("message-5", "assistant", "Tea costs 3 EUR."),
        message("message-6", "user", "and jam?"),
        message("message-7", "approval", tool_calls=[waits], tool_call_id="call_2"),
    ]


def agent(**fields: Any) -> dict[str, Any]:
    rows = fields.pop("messages", None)
    rows = history() if rows is None else rows
    return {
        "id": "agent-0",
        "name": "Ada",
        "agent_type": "letta_v1_agent",
        "system": "You sell tea.",
        "tags": ["shop"],
        "tool_ids": ["tool-0", "tool-1"],
        "block_ids": ["block-0", "block-1"],
        "source_ids": [],
        "tool_rules": [{"type": "requires_approval", "tool_name": "price_of", "prompt_template": None}],
        "include_base_tools": False,
        "description": "sells",
        "metadata": {"team": "shop"},
        "llm_config": {
            "model": "model",
            "handle": "fake/model",
            "model_endpoint_type": "openai",
            "context_window": 32_000,
            "put_inner_thoughts_in_kwargs": False,
            "enable_reasoner": False,
            "temperature": 0.5,
            "max_tokens": 2_000,
        },
        "embedding_config": {
            "embedding_model": "embed",
            "embedding_endpoint_type": "openai",
            "embedding_dim": 8,
            "embedding_chunk_size": 200,
            "handle": "fake/embed",
        },
        "tool_exec_environment_variables": {"CURRENCY": ""},
        "secrets": {"CURRENCY": ""},
        "timezone": "Europe/Berlin",
        "messages": rows,
        "in_context_message_ids": [row["id"] for row in rows],
        "files_agents": [],
        "group_ids": [],
        **fields,
    }


def agent_file(*agents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "agents": list(agents) or [agent()],
        "groups": [],
        "blocks": [
            {"id": "block-0", "label": "human", "value": "Name: Bob", "limit": 5_000, "metadata": {}},
            {"id": "block-1", "label": "persona", "value": "I help.", "limit": 100_000, "read_only": True},
        ],
        "files": [],
        "sources": [],
        "tools": [
            {"id": "tool-0", "name": "conversation_search", "tool_type": "letta_core", "source_code": None},
            {
                "id": "tool-1",
                "name": "price_of",
                "tool_type": "custom",
                "source_type": "json",
                "source_code": SOURCE,
                "tags": ["shop"],
            },
        ],
        "mcp_servers": [],
        "skills": [],
        "metadata": {"revision_id": "1c28e167b74f"},
        "created_at": "2026-11-15T02:39:20.461058+00:00",
        **fields,
    }


def meaning(document: dict[str, Any]) -> dict[str, Any]:
    """A file without what an import gives anew: the time, the compiled instructions, and the suffix of a copy."""
    found = json.loads(json.dumps(document))
    del found["created_at"]
    for each in found["agents"]:
        each["name"] = each["name"].removesuffix("_copy")
        for row in each["messages"]:
            if row["role"] == "system":
                row["content"] = []
    for tool in found["tools"]:
        tool.get("metadata_", {}).pop("mcp", None)
    return found
