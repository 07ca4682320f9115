"""MCP servers in the common file format: read as other programs write it, and refused with the name of the field."""

from typing import Any

import pytest

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.mcp_servers import GrantedDirectory, McpConfig, McpServerType
from kelpie.tools.mcp.server_file import read_servers

ENV = {"TOKEN": "t-1", "EMPTY": "", "SECRET": "s"}


def read(**servers: Any) -> dict[str, McpConfig]:
    return read_servers({"mcpServers": servers}, ENV, {"SECRET"})


def test_a_program_with_what_it_is_granted() -> None:
    own = {"directories": ["/srv/a", {"path": "/srv/b", "writable": True}], "memory_mb": 64, "read_seconds": 5}
    entry = {"command": "npx", "args": ["-y", "pkg", 8080], "env": {"T": "Bearer ${TOKEN}"}, "kelpie": own}
    config = read(files=entry)["files"]
    assert (config.server_type, config.command, config.args) == (McpServerType.stdio, "npx", ("-y", "pkg", "8080"))
    assert config.env == {"T": "Bearer t-1"}
    assert config.options.directories == (GrantedDirectory("/srv/a"), GrantedDirectory("/srv/b", writable=True))
    assert (config.options.memory_mb, config.options.read_s) == (64, 5.0)


def test_servers_over_http() -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Team": "${TEAM:-a}", "X-Empty": "${EMPTY}"}
    found = read(
        plain={"url": "https://mcp.example/mcp", "headers": headers},
        old={"type": "sse", "serverUrl": "https://mcp.example/sse"},
        named={"transport": "streamable-http", "url": "https://mcp.example/mcp"},
        off={"disabled": True},
    )
    assert {name: each.server_type.value for name, each in found.items()} == {
        "plain": "streamable_http",
        "old": "sse",
        "named": "streamable_http",
    }
    assert found["plain"].token == "t-1"
    assert found["plain"].custom_headers == {"X-Team": "a", "X-Empty": ""}


@pytest.mark.parametrize(
    ("entry", "field", "remedy"),
    [
        (5, "mcpServers.a", "must be an object"),
        ({}, "mcpServers.a.url", "a server needs 'command' or 'url'"),
        ({"command": ""}, "mcpServers.a.command", "a server needs 'command' or 'url'"),
        ({"command": "x", "args": "--all"}, "mcpServers.a.args", "must be a list"),
        ({"command": "x", "args": [["y"]]}, "mcpServers.a.args", "must be text"),
        ({"command": "x", "env": ["A=1"]}, "mcpServers.a.env", "must be an object"),
        ({"command": "x", "env": {"A": None}}, "mcpServers.a.env.A", "must be text"),
        ({"command": "x", "args": ["${TOKN}"]}, "mcpServers.a.args", "TOKN is not set"),
        ({"command": "x", "args": ["${SECRET}"]}, "mcpServers.a.args", "is not passed on"),
        ({"command": "x", "kelpie": []}, "mcpServers.a.kelpie", "must be an object"),
        ({"command": "x", "kelpie": {"network": True}}, "mcpServers.a.kelpie", "does not know network"),
        ({"command": "x", "kelpie": {"memory_mb": "1G"}}, "mcpServers.a.kelpie.memory_mb", "32 or more"),
        ({"command": "x", "kelpie": {"egress": "a.example"}}, "mcpServers.a.kelpie.egress", "must be a list"),
        ({"command": "x", "kelpie": {"directories": [{"writable": 1}]}}, "mcpServers.a.kelpie.directories", "a path"),
        ({"command": "x", "kelpie": {"call_seconds": -1}}, "mcpServers.a.kelpie.call_seconds", "number of seconds"),
        ({"url": 5}, "mcpServers.a.url", "a server needs"),
        ({"url": "https://a.example", "type": "ws"}, "mcpServers.a.type", "use stdio, http or sse"),
        ({"url": "https://a.example", "headers": "X: 1"}, "mcpServers.a.headers", "must be an object"),
    ],
)
def test_what_is_wrong_is_named(entry: Any, field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(a=entry)
    assert refused.value.field == field and remedy in refused.value.remedy


@pytest.mark.parametrize(
    "data", [None, [], {}, {"mcpServers": []}, {"mcpServers": {str(at): {} for at in range(1001)}}]
)
def test_a_file_of_another_kind_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="mcpServers"):
        read_servers(data, ENV)
