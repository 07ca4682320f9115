"""MCP servers as records, over both of Letta's APIs. No server of these tests can be reached."""

from typing import Any

import httpx
import pytest
from letta_client.types import SseMcpServer, StdioMcpServer, StreamableHTTPMcpServer

STDIO = {"mcp_server_type": "stdio", "command": "/nonexistent", "args": ["-v"], "env": {"A": "b"}}
HTTP = {
    "mcp_server_type": "streamable_http",
    "server_url": "https://mcp.example.com/mcp",
    "auth_header": "Authorization",
    "auth_token": "tok",
    "custom_headers": {"X-A": "1"},
}
SSE = {"mcp_server_type": "sse", "server_url": "https://mcp.example.com/sse"}


async def make(client: httpx.AsyncClient, name: str, config: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/v1/mcp-servers/", json={"server_name": name, "config": config})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def names(client: httpx.AsyncClient) -> list[str]:
    return [server["server_name"] for server in (await client.get("/v1/mcp-servers/")).json()]


async def test_a_server_from_registering_to_removing(client: httpx.AsyncClient) -> None:
    made = await make(client, "one", STDIO)
    StdioMcpServer.model_validate(made)
    assert made == STDIO | {"id": made["id"], "server_name": "one"}
    path = f"/v1/mcp-servers/{made['id']}"
    assert (await client.get(path)).json() == made == (await client.get("/v1/mcp-servers/")).json()[0]
    change = {"server_name": "two", "config": {"mcp_server_type": "stdio", "command": None, "args": ["-q"]}}
    changed = (await client.patch(path, json=change)).json()
    assert changed == made | {"server_name": "two", "args": ["-q"]} == (await client.get(path)).json()
    assert (await client.get(f"{path}/tools")).json() == []
    gone = await client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(path)).status_code == 400
    assert await names(client) == []


async def test_tokens_come_back_as_they_stand_in_the_header(client: httpx.AsyncClient) -> None:
    made = await make(client, "http", HTTP)
    StreamableHTTPMcpServer.model_validate(made)
    assert made == HTTP | {"id": made["id"], "server_name": "http", "auth_token": "Bearer tok"}
    path = f"/v1/mcp-servers/{made['id']}"
    body = {"config": {key: made[key] for key in HTTP}}
    assert (await client.patch(path, json=body)).json() == made, "writing back what was read changes nothing"
    other = await make(client, "sse", SSE | {"auth_header": "X-Key", "auth_token": "k"})
    SseMcpServer.model_validate(other)
    assert (other["auth_header"], other["auth_token"]) == ("X-Key", "k")
    plain = await make(client, "plain", SSE | {"auth_token": "Bearer t"})
    assert (plain["auth_header"], plain["auth_token"]) == ("Authorization", "Bearer t")
    bare = await make(client, "bare", SSE)
    assert bare["auth_header"] is bare["auth_token"] is bare["custom_headers"] is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/mcp",
        "http://10.0.0.5/mcp",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "http://0.0.0.0/",
        "http://localhost:8283/",
        "http://x.localhost/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://224.0.0.1/",
        "ftp://mcp.example.com/",
        "https://",
        "mcp.example.com",
        "http://a b/",
        "http://[::1/",
        "http://a:99999999/",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["sse", "streamable_http"])
async def test_addresses_that_are_not_public_are_refused(client: httpx.AsyncClient, kind: str, url: str) -> None:
    config = {"mcp_server_type": kind, "server_url": url}
    refused = await client.post("/v1/mcp-servers/", json={"server_name": "x", "config": config})
    assert refused.status_code == 422 and "server_url" in refused.json()["detail"]
    made = await make(client, "good", SSE | {"mcp_server_type": kind})
    path = f"/v1/mcp-servers/{made['id']}"
    assert (await client.patch(path, json={"config": config})).status_code == 422
    old = {"server_name": "x", "type": kind, "server_url": url}
    assert (await client.put("/v1/tools/mcp/servers", json=old)).status_code == 422
    assert (await client.get("/v1/mcp-servers/")).json() == [made]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"server_name": "q"}, 422),
        ({"server_name": "q", "config": {"mcp_server_type": "pigeon"}}, 422),
        ({"server_name": "q", "config": STDIO | {"x": 1}}, 422),
        ({"server_name": "q", "config": STDIO, "x": 1}, 422),
        ({"server_name": "q", "config": {"mcp_server_type": "stdio", "command": "x"}}, 422),
        ({"server_name": " ", "config": STDIO}, 400),
        ({"server_name": "q" * 300, "config": STDIO}, 400),
        ({"server_name": "q", "config": STDIO | {"command": " "}}, 400),
        ({"server_name": "taken", "config": STDIO}, 409),
    ],
)
async def test_what_cannot_be_a_server_is_refused(client: httpx.AsyncClient, body: dict[str, Any], status: int) -> None:
    await make(client, "taken", STDIO)
    assert (await client.post("/v1/mcp-servers/", json=body)).status_code == status
    assert await names(client) == ["taken"]


async def test_changes_that_cannot_be_change_nothing(client: httpx.AsyncClient) -> None:
    made, _ = await make(client, "one", STDIO), await make(client, "two", STDIO)
    path = f"/v1/mcp-servers/{made['id']}"
    config = {"mcp_server_type": "stdio", "command": "c", "args": []}
    for body, status in (
        ({"server_name": "two", "config": config}, 409),
        ({"config": SSE}, 400),
        ({"server_name": "x"}, 422),
        ({"config": {"mcp_server_type": "stdio"}}, 422),
    ):
        assert (await client.patch(path, json=body)).status_code == status, body
    assert (await client.get(path)).json() == made
    assert (await client.patch("/v1/mcp-servers/mcp_server-bad", json={"config": config})).status_code == 404


async def test_the_older_api_goes_by_names(client: httpx.AsyncClient) -> None:
    base = "/v1/tools/mcp/servers"
    one = {"server_name": "one", "type": "stdio", "command": "c", "args": ["a"], "env": None}
    two = {"server_name": "two", "server_url": "https://mcp.example.com/", "auth_token": "t"}
    assert (await client.put(base, json=one)).json() == [one]
    shown = {**two, "type": "sse", "auth_header": "Authorization", "auth_token": "Bearer t", "custom_headers": None}
    assert (await client.put(base, json=two)).json() == [one, shown]
    assert (await client.put(base, json=two)).status_code == 409
    assert (await client.get(base)).json() == {"one": one, "two": shown}
    assert await names(client) == ["one", "two"]
    changed = (await client.patch(f"{base}/two", json={"token": "u", "custom_headers": {"a": "b"}})).json()
    assert changed == shown | {"auth_token": "Bearer u", "custom_headers": {"a": "b"}}
    stdio = {"server_name": "three", "stdio_config": one | {"command": "d"}}
    assert (await client.patch(f"{base}/one", json=stdio)).json() == one | {"command": "d", "server_name": "three"}
    assert (await client.patch(f"{base}/three", json={"server_url": "https://x.example.com/"})).status_code == 400
    assert (await client.delete(f"{base}/two")).json() == [one | {"command": "d", "server_name": "three"}]
    assert (await client.delete(f"{base}/two")).status_code == 404
    assert (await client.put(base, json={"server_name": "x"})).status_code == 422


async def test_a_server_that_cannot_be_reached_is_named_with_the_reason(client: httpx.AsyncClient) -> None:
    made = await make(client, "one", STDIO)
    path = f"/v1/mcp-servers/{made['id']}"
    for method, url in (
        ("PATCH", f"{path}/refresh"),
        ("POST", "/v1/tools/mcp/servers/one/resync"),
        ("GET", "/v1/tools/mcp/servers/one/tools"),
    ):
        failed = await client.request(method, url)
        assert failed.status_code == 502, failed.text
        error = failed.json()["error"]
        assert error["type"] == "mcp_connection_error" and "'one'" in error["message"], error
    assert (await client.get(f"{path}/tools/tool-x")).status_code == 404
    assert (await client.post(f"{path}/tools/tool-x/run", json={"args": {}})).status_code == 404
    assert (await client.post("/v1/tools/mcp/servers/one/some_tool")).status_code == 404
    assert (await client.patch("/v1/mcp-servers/mcp_server-x/refresh")).status_code == 404


async def test_a_mask_that_is_sent_back_keeps_the_stored_value(client: httpx.AsyncClient) -> None:
    made = await make(client, "http", HTTP)
    path = f"/v1/mcp-servers/{made['id']}"
    masked = {
        "mcp_server_type": "streamable_http",
        "server_url": HTTP["server_url"],
        "auth_token": "********",
        "custom_headers": {"X-A": "********", "X-B": "2"},
    }
    after = (await client.patch(path, json={"config": masked})).json()
    assert after["auth_token"] == "Bearer tok" and after["custom_headers"] == {"X-A": "1", "X-B": "2"}
    refused = await client.post("/v1/mcp-servers/", json={"server_name": "other", "config": masked})
    assert refused.status_code == 400 and "********" in refused.json()["detail"]
