"""An MCP server as Letta's clients see it, through the newer API and the older one.

Token and the values of headers and variables are masked for a caller that sees no secrets. A mask that is sent back
keeps the stored value.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.agent.resources.manual_tool_runs import ManualToolResult
from kelpie.core.tools.mcp_servers import McpConfig, McpOptions, McpServer, McpServerType
from kelpie.mcp.client.answers import RemoteTool
from kelpie.mcp.connections.connection import ConnectionReport
from kelpie.server.http.masks import MASK
from kelpie.tools.mcp.tool_schemas import STATUS_KEY, WARNINGS_KEY
from kelpie.tools.mcp.tool_sync import SyncResult

_SECRET = frozenset({"auth_token", "custom_headers", "env"})


def server_shape(server: McpServer, sees_secrets: bool) -> dict[str, Any]:
    return {
        "mcp_server_type": server.config.server_type,
        **_config(server, sees_secrets),
        "id": server.id,
        "server_name": server.server_name,
    }


def old_shape(server: McpServer, sees_secrets: bool) -> dict[str, Any]:
    return {
        "server_name": server.server_name,
        "type": server.config.server_type,
        **_config(server, sees_secrets),
    }


def _config(server: McpServer, sees_secrets: bool) -> dict[str, Any]:
    shown = _fields(server.config)
    if not sees_secrets:
        return {name: _masked(value) if name in _SECRET else value for name, value in shown.items()}
    return shown | ({"kelpie_error": " ".join(server.unreadable.values())} if server.unreadable else {})


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    return None if value is None else MASK


def options_shape(options: McpOptions) -> dict[str, Any]:
    return {
        "connect_seconds": options.connect_s,
        "read_seconds": options.read_s,
        "call_seconds": options.call_s,
        "egress": list(options.egress),
        "memory_mb": options.memory_mb,
        "directories": [{"path": each.path, "writable": each.writable} for each in options.directories],
    }


def remote_shape(tool: RemoteTool, meta: str = "_meta") -> dict[str, Any]:
    """A tool as its server lists it, in the fields of MCP."""
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "outputSchema": None if tool.output_schema is None else dict(tool.output_schema),
        "annotations": None if tool.annotations is None else dict(tool.annotations),
        meta: None if tool.meta is None else dict(tool.meta),
    }


def health_shape(schema: Mapping[str, Any]) -> dict[str, Any]:
    """How well providers can check the arguments of a tool."""
    return {"status": schema.get(STATUS_KEY), "reasons": list(schema.get(WARNINGS_KEY) or ())}


def refresh_shape(result: SyncResult) -> dict[str, Any]:
    """What a refresh changed; `kelpie_refused` are tools that cannot be used, with the reasons."""
    told = {"deleted": list(result.deleted), "updated": list(result.updated), "added": list(result.added)}
    return told | ({"kelpie_refused": dict(result.refused)} if result.refused else {})


def result_shape(tried: ManualToolResult) -> dict[str, Any]:
    """The result of a call; a tool that fails says why in its return value."""
    return {
        "status": "success" if tried.outcome.ok else "error",
        "func_return": tried.outcome.text,
        "agent_state": None,
        "stdout": None,
        "stderr": None,
        "sandbox_config_fingerprint": None,
    }


def status_shape(server: McpServer, report: ConnectionReport) -> dict[str, Any]:
    """The state of a server's connection (Kelpie only)."""
    breaker = report.breaker
    return {
        "id": server.id,
        "server_name": server.server_name,
        "mcp_server_type": server.config.server_type,
        "connected": report.connected,
        "protocol_version": report.version,
        "server_info": None if report.server is None else dict(report.server),
        "calls": report.calls,
        "breaker": breaker.state.value,
        "failures": breaker.failures,
        "retry_after_seconds": round(breaker.retry_after_s, 3),
        "last_error": breaker.last_error,
        "kelpie_options": options_shape(server.config.options),
    }


def _fields(config: McpConfig) -> dict[str, Any]:
    if config.server_type is McpServerType.stdio:
        return {
            "command": config.command,
            "args": list(config.args),
            "env": None if config.env is None else dict(config.env),
        }
    return {
        "server_url": config.server_url,
        "auth_header": config.auth_header,
        "auth_token": config.shown_token,
        "custom_headers": None if config.custom_headers is None else dict(config.custom_headers),
    }
