"""Web tools in a turn: their results reach the model, and permissions and records hold for them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.core.conversations.messages import ToolCall, Usage
from kelpie.llm.provider.interface import Reply
from tests.server.rig import Puppet, client_of, make_agent, open_rig, said
from tests.tools.web_server import WebServer, answer, json_answer, open_web_server

FOUND = {"results": [{"title": "Tea", "url": "https://a.example/tea", "content": "Leaves.", "score": 0.9}]}
PARALLEL = {"provider_type": "openai", "parallel_tool_calls": True}
BOTH = ("web_search", "fetch_webpage")


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[tuple[WebServer, httpx.AsyncClient, Puppet]]:
    async with open_web_server() as server:
        server.routes |= {"/search": json_answer(FOUND), "/tea": answer("Tea is made of leaves.", "text/plain")}
        settings = {"web_private": True, "tavily_api_key": "tvly-1", "tavily_base_url": server.url}
        async with open_rig(tmp_path, **settings) as (kelpie, puppet), client_of(kelpie) as client:
            yield server, client, puppet


def both(url: str) -> Reply:
    calls = (
        ToolCall("call_s", "web_search", json.dumps({"query": "tea", "num_results": 1})),
        ToolCall("call_f", "fetch_webpage", json.dumps({"url": f"{url}/tea"})),
    )
    return Reply((), calls, "tool_calls", Usage(10, 2, 12))


async def results_of(client: httpx.AsyncClient, agent: dict[str, Any]) -> dict[str, Any]:
    sent = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "look it up"})
    assert sent.status_code == 200, sent.text
    messages = sent.json()["messages"]
    returned = [one for one in messages if one["message_type"] == "tool_return_message"]
    return {each["tool_call_id"]: each for one in returned for each in one["tool_returns"]}


async def test_a_turn_searches_and_reads(web: tuple[WebServer, httpx.AsyncClient, Puppet]) -> None:
    server, client, puppet = web
    agent = await make_agent(client, tools=list(BOTH), model_settings=PARALLEL)
    puppet.script += [both(server.url), said("Leaves.")]
    found = await results_of(client, agent)
    assert {one["status"] for one in found.values()} == {"success"}
    assert json.loads(found["call_s"]["tool_return"])["results"][0]["url"] == "https://a.example/tea"
    assert found["call_f"]["tool_return"].endswith("\n\nTea is made of leaves.")
    listed = (await client.get(f"/v1/agents/{agent['id']}/tool-calls")).json()
    assert {(one["tool"], one["outcome"]) for one in listed} == {(name, "success") for name in BOTH}


async def test_an_agent_without_the_network_gets_neither(web: tuple[WebServer, httpx.AsyncClient, Puppet]) -> None:
    server, client, puppet = web
    denied = {"deny": ["capability:network"]}
    agent = await make_agent(client, tools=list(BOTH), model_settings=PARALLEL, kelpie_permissions=denied)
    puppet.script += [both(server.url), said("No.")]
    found = await results_of(client, agent)
    assert {one["status"] for one in found.values()} == {"error"} and not server.asked
