"""An MCP server as Letta's clients see it, through the newer API and the older one.

Token, headers and variables are null for a caller that sees no secrets.
"""

from typing import Any

from kelpie.core.tools.mcp_servers import McpConfig, McpServer, McpServerType

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
        return {name: None if name in _SECRET else value for name, value in shown.items()}
    return shown | ({"kelpie_error": " ".join(server.unreadable.values())} if server.unreadable else {})


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
