"""MCP servers in the common file format, `{"mcpServers": {name: {...}}}`: read, with `${NAME}` for variables. Pure.

A server is `command` with `args` and `env`, or `url` with `headers`; `type` (or `transport`) is needed for SSE only.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.mcp_servers import (
    AUTHORIZATION,
    GrantedDirectory,
    McpConfig,
    McpOptions,
    McpServerType,
    bare_token,
)

SERVERS_MAX = 1000
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SSE = ("sse",)
_HTTP = ("http", "streamable_http", "streamable-http", "streamableHttp")


@dataclass(frozen=True, slots=True)
class _Variables:
    env: Mapping[str, str]
    hidden: AbstractSet[str]

    def value(self, where: str, found: re.Match[str]) -> str:
        if found[1] in self.hidden:
            raise InvalidInput(where, f"{found[1]} holds a secret of Kelpie itself and is not passed on to MCP servers")
        if found[1] in self.env:
            return self.env[found[1]]
        if found[2] is not None:
            return found[2]
        raise InvalidInput(where, f"the environment variable {found[1]} is not set")


def read_servers(data: Any, env: Mapping[str, str], hidden: AbstractSet[str] = frozenset()) -> dict[str, McpConfig]:
    """The servers of a parsed file, by name. Variables in `hidden` are not passed on: the file may come from others.

    Raises InvalidInput that names the server and the field.
    """
    variables = _Variables(env, hidden)
    found = data.get("mcpServers") if isinstance(data, Mapping) else None
    if not isinstance(found, Mapping):
        raise InvalidInput("mcpServers", "the file must be an object with the key 'mcpServers'")
    if len(found) > SERVERS_MAX:
        raise InvalidInput("mcpServers", f"the file has more than {SERVERS_MAX} servers")
    return {
        str(name): _config(f"mcpServers.{name}", entry, variables)
        for name, entry in found.items()
        if not (isinstance(entry, Mapping) and entry.get("disabled") is True)
    }


def _config(where: str, entry: Any, variables: _Variables) -> McpConfig:
    if not isinstance(entry, Mapping):
        raise InvalidInput(where, "must be an object")
    given = _expanded(where, entry, variables)
    kind = given.get("type") or given.get("transport")
    if "command" in given:
        return McpConfig(
            McpServerType.stdio,
            command=_text(where, given, "command"),
            args=tuple(map(str, given.get("args") or ())),
            env={str(name): str(value) for name, value in (given.get("env") or {}).items()} or None,
            options=_options(where, given),
        )
    url = _text(where, {"url": given.get("url") or given.get("serverUrl")}, "url")
    if kind not in (None, *_SSE, *_HTTP):
        raise InvalidInput(f"{where}.type", f"'{str(kind)[:40]}' is not known; use stdio, http or sse")
    headers = {str(name): str(value) for name, value in (given.get("headers") or {}).items()}
    token = next((value for name, value in headers.items() if name.lower() == "authorization"), None)
    others = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return McpConfig(
        McpServerType.sse if kind in _SSE else McpServerType.streamable_http,
        server_url=url,
        auth_header=AUTHORIZATION if token else None,
        token=bare_token(token),
        custom_headers=others or None,
        options=_options(where, given),
    )


def _options(where: str, given: Mapping[str, Any]) -> McpOptions:
    """Kelpie's own settings, in the key `kelpie`."""
    own = given.get("kelpie") or {}
    if not isinstance(own, Mapping):
        raise InvalidInput(f"{where}.kelpie", "must be an object")
    known = {"connect_seconds", "read_seconds", "call_seconds", "egress", "memory_mb", "directories"}
    if unknown := sorted(set(own) - known):
        raise InvalidInput(f"{where}.kelpie", f"does not know {', '.join(unknown)[:100]}")
    granted = [each if isinstance(each, Mapping) else {"path": each} for each in own.get("directories") or ()]
    return McpOptions(
        connect_s=_seconds(where, own, "connect_seconds"),
        read_s=_seconds(where, own, "read_seconds"),
        call_s=_seconds(where, own, "call_seconds"),
        egress=tuple(map(str, own.get("egress") or ())),
        memory_mb=own.get("memory_mb") if isinstance(own.get("memory_mb"), int) else None,
        directories=tuple(
            GrantedDirectory(str(each.get("path", "")), each.get("writable") is True) for each in granted
        ),
    )


def _seconds(where: str, own: Mapping[str, Any], name: str) -> float | None:
    value = own.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86_400:
        raise InvalidInput(f"{where}.kelpie.{name}", "must be a number of seconds from 0 to 86400")
    return float(value)


def _text(where: str, given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{where}.{name}", "is missing; a server needs 'command' or 'url'")
    return value


def _expanded(where: str, value: Any, variables: _Variables) -> Any:
    """The value with `${NAME}` replaced, or `${NAME:-default}`. Raises InvalidInput for a variable that is not set."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: variables.value(where, found), value)
    if isinstance(value, Mapping):
        return {key: _expanded(f"{where}.{key}", each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_expanded(where, each, variables) for each in value]
    return value
