"""Official MCP clients against a live server: the SDK over HTTP and over `kelpie mcp serve`, in both generations."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.served import Served, environment, served
from tests.mcp.installed import HERE, MCP_1, require

PASSWORD = "open sesame"
KELPIE = str(Path(sys.executable).parent / "kelpie")
GENERATIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data"), KELPIE_SERVER_PASSWORD=PASSWORD) as running:
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {PASSWORD}"}) as http:
            http.post("/v1/agents/", json={"name": "Ann", "model": "kelpie/demo"}).raise_for_status()
        yield running


def command(server: Served) -> StdioServerParameters:
    env = environment(server.data_dir, KELPIE_API_KEY=PASSWORD)
    return StdioServerParameters(command=KELPIE, args=["--url", server.url, "mcp", "serve"], env=env)


@asynccontextmanager
async def connected(server: Served, way: str, mode: Any) -> AsyncIterator[Client]:
    if way == "stdio":
        async with Client(command(server), mode=mode) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {PASSWORD}"}, timeout=DEADLINE_S) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", GENERATIONS)
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_the_sdk_finds_agents_talks_to_them_and_reads_them(server: Served, way: str, mode: str) -> None:
    async with asyncio.timeout(DEADLINE_S), connected(server, way, mode) as client:
        assert client.protocol_version == GENERATIONS[mode]
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["list_agents"].annotations.read_only_hint and not tools["send_message"].annotations.read_only_hint
        found: Any = (await client.call_tool("list_agents", {"query": "Ann"})).structured_content
        [agent] = found["agents"]
        told: list[str | None] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            told.append(message)

        said = [client.call_tool("send_message", {"agent": "Ann", "message": f"hello {n}"}) for n in range(3)]
        asked = client.call_tool("send_message", {"agent": "Ann", "message": "hello"}, progress_callback=progress)
        for result in await asyncio.gather(*said, asked):
            reply: Any = result.structured_content
            assert not result.is_error and "demo model" in reply["reply"]
        assert told and told[-1] == "The agent has answered."
        [resource] = [one for one in (await client.list_resources()).resources if one.name == "Ann"]
        [content] = (await client.read_resource(resource.uri)).contents
        assert json.loads(content.text)["id"] == agent["id"]
        prompt = await client.get_prompt("agent_memory", {"agent": "Ann"})
        assert prompt.messages[1].content.type == "resource"
        wrong = await client.call_tool("send_message", {"agent": "Nobody", "message": "hi"})
        assert wrong.is_error and "no agent named 'Nobody'" in wrong.content[0].text


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_the_sdk_of_the_first_generation(server: Served, way: str) -> None:
    require(MCP_1)
    ways = {"http": (f"{server.url}/mcp", PASSWORD), "stdio": (KELPIE, "--url", server.url, "mcp", "serve")}
    path = os.pathsep.join(filter(None, (str(MCP_1), os.environ.get("PYTHONPATH"))))
    env = environment(server.data_dir, KELPIE_API_KEY=PASSWORD, PYTHONPATH=path)
    command = (sys.executable, HERE / "sdk_client_1.py", "Ann", *ways[way])
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_the_bridge_answers_what_it_can_and_ends_with_its_input(server: Served) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": hello}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        "not JSON",
        "[]",
        json.dumps({"jsonrpc": "2.0", "id": "b", "method": "nothing"}),
    ]

    def run(url: str, key: str) -> dict[Any, Any]:
        done = subprocess.run(
            [KELPIE, "--url", url, "mcp", "serve"],
            input="\n".join(lines).encode(),
            capture_output=True,
            timeout=DEADLINE_S,
            env=environment(server.data_dir, KELPIE_API_KEY=key),
            check=True,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(answer["jsonrpc"] == "2.0" for answer in answers)
        return {answer["id"]: answer for answer in answers}

    answers = run(server.url, PASSWORD)
    assert answers["a"]["result"]["protocolVersion"] == "2025-06-18"
    assert answers["b"]["error"]["code"] == -32601 and answers[None]["error"]["code"] in (-32700, -32600)
    refused = run(server.url, "wrong")
    assert "rejected the key" in refused["a"]["error"]["message"]
    assert "no server answers" in run("http://127.0.0.1:1", "x")["b"]["error"]["message"]
