"""The document of a template: an agent file without messages and without secrets, as text and as values."""

from typing import Any, cast

import orjson

from kelpie.agent.templates.templates import named
from kelpie.core.agents.agent_file import AgentFile
from kelpie.server.letta.agent_files import file_pieces
from kelpie.server.letta.agent_files.document import agent_file

_KEPT = ("agents", *file_pieces.LISTS)
_SERVER_FIELDS = ("id", "server_type", "server_name", "server_url", "metadata_")
_STDIO_FIELDS = ("server_name", "type", "command", "args")


def template_document(raw: bytes, field: str) -> tuple[str, AgentFile]:
    """The text to store for an agent file, and the file. Raises InvalidInput that names the field."""
    with named(field):
        found = file_pieces.opened(raw)
        for agent in found["agents"]:
            agent["messages"] = agent["in_context_message_ids"] = []
            for name in ("secrets", "tool_exec_environment_variables"):
                if isinstance(agent.get(name), dict):
                    agent[name] = dict.fromkeys(agent[name], "")
        found["mcp_servers"] = [_without_secrets(server) for server in found["mcp_servers"]]
        document = {name: found[name] for name in _KEPT}
        text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
        return text, read_document(text)


def read_document(text: str) -> AgentFile:
    """The agent file of a template. Raises InvalidInput."""
    return agent_file(file_pieces.answer(text.encode()))


def _without_secrets(server: dict[str, Any]) -> dict[str, Any]:
    found = {name: server[name] for name in _SERVER_FIELDS if name in server}
    stdio: Any = server.get("stdio_config")
    if isinstance(stdio, dict):
        given = cast("dict[str, Any]", stdio)
        found["stdio_config"] = {name: given[name] for name in _STDIO_FIELDS if name in given}
    return found
