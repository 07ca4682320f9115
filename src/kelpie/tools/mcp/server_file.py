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
MEMORY_MB_MIN = 32
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
            args=_texts(where, given, "args"),
            env=_pairs(where, given, "env") or None,
            options=_options(where, given),
        )
    url = _text(where, {"url": given.get("url") or given.get("serverUrl")}, "url")
    if kind not in (None, *_SSE, *_HTTP):
        raise InvalidInput(f"{where}.type", f"'{str(kind)[:40]}' is not known; use stdio, http or sse")
    headers = _pairs(where, given, "headers")
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
    own, where = given.get("kelpie"), f"{where}.kelpie"
    if own is None:
        return McpOptions()
    if not isinstance(own, Mapping):
        raise InvalidInput(where, "must be an object")
    known = {"connect_seconds", "read_seconds", "call_seconds", "egress", "memory_mb", "directories"}
    if unknown := sorted(set(own) - known):
        raise InvalidInput(where, f"does not know {', '.join(unknown)[:100]}; it knows {', '.join(sorted(known))}")
    return McpOptions(
        connect_s=_seconds(where, own, "connect_seconds"),
        read_s=_seconds(where, own, "read_seconds"),
        call_s=_seconds(where, own, "call_seconds"),
        egress=_texts(where, own, "egress"),
        memory_mb=_memory(where, own),
        directories=tuple(_directory(f"{where}.directories", each) for each in _list(where, own, "directories")),
    )


def _directory(where: str, given: Any) -> GrantedDirectory:
    """A path, or an object with `path` and `writable`."""
    entry = given if isinstance(given, Mapping) else {"path": given}
    path, writable = entry.get("path"), entry.get("writable", False)
    if not isinstance(path, str) or not isinstance(writable, bool):
        raise InvalidInput(where, 'each must be a path, or {"path": ..., "writable": true}')
    return GrantedDirectory(path, writable)


def _memory(where: str, own: Mapping[str, Any]) -> int | None:
    value = own.get("memory_mb")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < MEMORY_MB_MIN):
        raise InvalidInput(f"{where}.memory_mb", f"must be a whole number of megabytes, {MEMORY_MB_MIN} or more")
    return value


def _seconds(where: str, own: Mapping[str, Any], name: str) -> float | None:
    value = own.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86_400:
        raise InvalidInput(f"{where}.{name}", "must be a number of seconds from 0 to 86400")
    return float(value)


def _list(where: str, given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is not None and not isinstance(value, list):
        raise InvalidInput(f"{where}.{name}", "must be a list")
    return value or []


def _texts(where: str, given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts; numbers are taken as they are written."""
    return tuple(_scalar(f"{where}.{name}", each) for each in _list(where, given, name))


def _pairs(where: str, given: Mapping[str, Any], name: str) -> dict[str, str]:
    value = given.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"{where}.{name}", "must be an object of names and texts")
    return {str(key): _scalar(f"{where}.{name}.{key}", each) for key, each in (value or {}).items()}


def _scalar(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInput(where, "must be text")
    return str(value)


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
