"""Input that costs more than its size: refused with its limit, never parsed in the server's process, never lost."""

import ast
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import AsyncLetta

from kelpie.core.paging import PAGE_BYTES_MAX
from kelpie.server.http.limits.request_limits import QUERY_CHARS_MAX
from tests.server.rig import make_agent, open_rig
from tests.server.test_serving import serving

MARK = "never_in_this_process"
SOURCE = f'def {MARK}(x: int) -> str:\n    """It.\n\n    Args:\n        x: it\n    """\n    return ""\n'
JSON = {"Content-Type": "application/json"}
LARGE = {"a": "x" * 70_000}
WIDE = {"a": [[]] * 6_000}


@pytest.fixture
def compiled() -> Iterator[list[Any]]:
    """Sources that this process parses or compiles."""
    found: list[Any] = []
    _SEEN.append(found)
    yield found
    _SEEN.remove(found)


_SEEN: list[list[Any]] = []


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event == "compile" and _SEEN and (MARK in str(args[0]) or args[1] == "tool.py"):
        _SEEN[-1].append(args)


sys.addaudithook(_note)  # there is no way to take it back; it does nothing outside of these tests


def levels(number: int) -> str:
    """A source whose code doubles with every level."""
    steps = "".join(f"{' ' * (n + 4)}try: pass\n{' ' * (n + 4)}finally:\n" for n in range(number))
    return f"def f() -> str:\n    '''F.'''\n{steps}{' ' * (number + 4)}pass\n"


async def test_no_route_compiles_source_in_this_process(client: httpx.AsyncClient, compiled: list[Any]) -> None:
    made = (await client.post("/v1/tools/", json={"source_code": SOURCE})).json()
    assert made["name"] == MARK and made["json_schema"]["parameters"]["required"] == ["x"]
    for method, path, body in (
        ("PUT", "/v1/tools/", {"source_code": SOURCE}),
        ("PATCH", f"/v1/tools/{made['id']}", {"source_code": SOURCE + "\n"}),
        ("POST", "/v1/tools/run", {"source_code": SOURCE, "args": {"x": 1}}),
        ("POST", "/v1/tools/generate-schema", {"code": SOURCE}),
        ("POST", "/v1/tools/", {"source_code": SOURCE, "args_json_schema": {"type": "object", "properties": {}}}),
        ("POST", "/v1/tools/", {"source_code": SOURCE, "json_schema": made["json_schema"]}),
    ):
        assert (await client.request(method, path, json=body)).status_code == 200, path
    assert not compiled
    ast.parse(SOURCE)
    assert compiled, "the test must notice what it looks for"


async def test_source_that_takes_too_much_is_refused_everywhere_and_nothing_is_stored(
    client: httpx.AsyncClient,
) -> None:
    made = (await client.post("/v1/tools/", json={"source_code": "def f() -> str:\n    '''F.'''\n"})).json()
    for method, path, body in (
        ("POST", "/v1/tools/", {"source_code": levels(20)}),
        ("PATCH", f"/v1/tools/{made['id']}", {"source_code": levels(20)}),
        ("POST", "/v1/tools/run", {"source_code": levels(20), "args": {}}),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 400 and "source_code: " in answer.json()["detail"]
        assert "memory" in answer.json()["detail"] or "processor time" in answer.json()["detail"]
    assert (await client.get(f"/v1/tools/{made['id']}")).json()["source_code"] == made["source_code"]
    told = await client.post("/v1/tools/", json={"source_code": "def f(:\n"})
    assert told.json()["detail"] == "source_code: is not valid Python: invalid syntax in line 1"


async def test_free_json_is_bounded_wherever_it_is_stored(client: httpx.AsyncClient) -> None:
    agent, block = await make_agent(client), (await client.post("/v1/blocks/", json={"label": "b"})).json()
    archive = (await client.post("/v1/archives/", json={"name": "a"})).json()
    tool = (await client.post("/v1/tools/", json={"source_code": SOURCE})).json()
    schema = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"enum": ["y" * 100] * 4_000}}}}
    person = {"identifier_key": "k", "name": "n", "identity_type": "user"}
    many = {f"k{number}": "v" for number in range(1_001)}
    rule = {"type": "run_first", "tool_name": "t", "args": {"a": "x" * 300_000}}
    served = {"mcp_server_type": "stdio", "command": "c", "args": ["x" * 70_000]}
    said = {"input": "x", "client_tools": [{"name": "f", "parameters": schema["parameters"]}]}
    decided = {
        "type": "approval",
        "approvals": [{"tool_call_id": "c", "approve": True, "arguments": {"a": [[]] * 21_000}}],
    }
    for method, path, body, field, told in (
        ("POST", "/v1/agents/", {"metadata": LARGE}, "metadata", "65536"),
        ("PATCH", f"/v1/agents/{agent['id']}", {"metadata": WIDE}, "metadata", "5000 values"),
        ("PATCH", f"/v1/agents/{agent['id']}", {"compaction_settings": LARGE}, "compaction_settings", "65536"),
        ("PATCH", f"/v1/agents/{agent['id']}", {"tool_rules": [rule]}, "tool_rules", "262144"),
        ("PATCH", f"/v1/agents/{agent['id']}", {"secrets": many}, "secrets", "1000"),
        (
            "PATCH",
            f"/v1/agents/{agent['id']}",
            {"model_settings": {"provider_type": "openai", "extra": "x" * 300_000}},
            "model_settings",
            "262144",
        ),
        ("POST", "/v1/blocks/", {"label": "x", "metadata": LARGE}, "metadata", "65536"),
        ("PATCH", f"/v1/blocks/{block['id']}", {"metadata": LARGE}, "metadata", "65536"),
        ("POST", f"/v1/archives/{archive['id']}/passages", {"text": "x", "metadata": WIDE}, "metadata", "5000 values"),
        ("POST", "/v1/tools/", {"source_code": SOURCE, "json_schema": schema}, "json_schema", "262144"),
        ("POST", "/v1/tools/", {"source_code": SOURCE, "args_json_schema": schema}, "args_json_schema", "262144"),
        ("PATCH", f"/v1/tools/{tool['id']}", {"metadata_": LARGE}, "metadata_", "65536"),
        ("POST", "/v1/tools/run", {"source_code": SOURCE, "args": {"a": [[]] * 21_000}}, "args", "20000 values"),
        (
            "POST",
            "/v1/identities/",
            person | {"properties": [{"key": "k", "value": {"a": "x" * 300_000}, "type": "json"}]},
            "properties",
            "262144",
        ),
        ("POST", "/v1/mcp-servers/", {"server_name": "s", "config": served}, "", "65536"),
        ("POST", "/v1/sandbox-config/", {"config": {"sandbox_dir": "x" * 300_000}}, "", "262144"),
        ("POST", f"/v1/agents/{agent['id']}/messages", said, "parameters", "262144"),
        ("POST", f"/v1/agents/{agent['id']}/messages", {"messages": [decided]}, "arguments", "20000 values"),
        (
            "POST",
            f"/v1/agents/{agent['id']}/generate",
            {"prompt": "x", "response_schema": schema},
            "response_schema",
            "262144",
        ),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 422, f"{path} {field}: {answer.status_code} {answer.text[:300]}"
        assert f"'{field}'" in answer.json()["detail"] or not field, f"{path} {field}: {answer.text[:300]}"
        assert told in answer.json()["detail"], f"{path} {field}: {answer.text[:300]}"
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    answer = await client.post("/v1/blocks/", json={"label": "x", "metadata": deep})
    assert answer.status_code == 422 and "deeper than 32 levels" in answer.json()["detail"]


async def test_bodies_are_bounded_by_route_and_by_their_values(client: httpx.AsyncClient) -> None:
    agent = await make_agent(client)
    large = "x" * (2 * 1024 * 1024 + 100)
    answer = await client.post("/v1/blocks/", json={"label": "b", "value": large})
    assert answer.status_code == 413 and "KELPIE_JSON_BYTES_MAX" in answer.json()["detail"]
    assert (await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": large})).status_code == 200
    for path in ("/v1/blocks/", f"/v1/agents/{agent['id']}/messages"):
        answer = await client.post(path, content=b'{"x": [' + b"[]," * 50_000 + b"1]}", headers=JSON)
        assert answer.status_code == 422 and "more than 50000 values" in answer.json()["detail"]
        plain = await client.post(path, content=b"\0" * 2_000_000, headers={"Content-Type": "text/plain"})
        assert plain.status_code == 422 and len(plain.content) < 2_000


async def test_every_query_has_a_limit(client: httpx.AsyncClient) -> None:
    for path in ("/v1/messages/search", "/v1/tools/search", "/v1/passages/search", "/v1/agents/messages/search"):
        assert (await client.post(path, json={"query": "x" * QUERY_CHARS_MAX})).status_code == 200, path
        answer = await client.post(path, json={"query": "x" * (QUERY_CHARS_MAX + 1)})
        assert answer.status_code == 422 and f"{QUERY_CHARS_MAX}" in answer.json()["detail"], path
    for path in ("?" + "x" * 60_001, "?" + "a=1&" * 3_000, "x" * 5_000):
        answer = await client.get(f"/v1/agents/{path}")
        assert answer.status_code == 414 and "60000 bytes" in answer.json()["detail"]


@pytest.fixture
async def sdk(tmp_path: Path) -> AsyncIterator[AsyncLetta]:
    async with (
        open_rig(tmp_path, lifecycle=False) as (kelpie, _),
        serving(kelpie) as (url, _),
        AsyncLetta(base_url=url, api_key="unused", max_retries=0) as client,
    ):
        yield client


async def test_pages_end_by_bytes_and_the_sdk_still_gets_everything(sdk: AsyncLetta) -> None:
    large, number = "x" * (PAGE_BYTES_MAX // 5), 12
    names = [f"name-{at:02}" for at in range(number)]
    for name in names:
        await sdk.agents.create(name=name, description=large, memory_blocks=[{"label": name, "value": "v"}])
    agent = await sdk.agents.create(name="speaker", tags=["t"])
    for name in names:
        await sdk.agents.messages.create(agent.id, input=name + large)

    first = await sdk.agents.list(order="asc", limit=100)
    assert 1 < len(first.items) < number
    up = [each.name async for each in await sdk.agents.list(order="asc", limit=100)]
    down = [each.name async for each in await sdk.agents.list(order="desc", limit=100)]
    assert up == [*names, "speaker"] == down[::-1]
    back = [each.name async for each in await sdk.agents.list(order="asc", limit=100, before=agent.id)]
    assert sorted(back) == names
    said = [each async for each in await sdk.agents.messages.list(agent.id, order="asc", limit=100)]
    texts = [str(each.content)[:7] for each in said if each.message_type == "user_message"]
    assert [text for text in texts if text.startswith("name")] == names
    short = await sdk.agents.messages.list(agent.id, order="desc", limit=100)
    newest = [str(each.content)[:7] for each in short.items if each.message_type == "user_message"]
    shown = [text for text in newest if text.startswith("name")]
    assert shown == names[-len(shown) :] and 1 < len(shown) < number
