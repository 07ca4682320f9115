"""Every search says why each item matched: the routes, the tools of agents, and the search of the MCP server."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.memory.facts import Fact
from kelpie.core.memory.passages import NewPassage
from kelpie.core.time import from_datetime
from kelpie.core.tools.tools import NewTool
from kelpie.storage.agents import agents
from kelpie.storage.conversations import messages
from kelpie.storage.memory import facts
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.world.database import Tx
from tests.agent.embedding_rig import EmbeddingRig
from tests.server.rig import client_of

MAY, JULY = (from_datetime(datetime(2023, month, 9, tzinfo=UTC)) for month in (5, 7))
QUERY = "Which kitten arrived in May 2023?"
# By words, vector and date; beside it, by its neighbour and the date; by the vector alone.
ARRIVED, BESIDE, OTHER = "the kitten arrived", "it sleeps on sofas", "feline moggy"
REASONS = {ARRIVED: {"words", "vector", "date"}, BESIDE: {"neighbour", "date"}, OTHER: {"vector"}}
FILLER = [f"nothing {word}" for word in ("lamp", "ladder", "engine", "violin", "map", "letter", "boat", "clock")]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[EmbeddingRig]:
    made = EmbeddingRig(tmp_path / "kelpie.db")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def agent_id(rig: EmbeddingRig) -> AgentId:
    """An agent with the same texts as messages, as a batch of passages, and partly as facts; and a tool."""
    agent_id = await rig.agent()
    said = [(ARRIVED, MAY), (BESIDE, MAY), *((text, JULY) for text in FILLER), (OTHER, JULY)]
    api, ids = rig.kelpie.api(), rig.kelpie.world.ids
    rows = [Message(ids.new(MessageId), agent_id, Role.user, at, (Text(text),)) for text, at in said]
    learnt = [
        Fact(ids.new(FactId), agent_id, f"s{number}", "a", "v", text, at, at, at, valid_until=at + 1)
        for number, (text, at) in enumerate(said)
    ]

    def write(tx: Tx) -> None:
        messages.append(tx, rows)
        for fact in learnt:
            facts.add(tx, fact)

    await rig.kelpie.world.database.transact(write)
    archive, _ = await api.archives.remember(agent_id, NewPassage("nothing yet", created_at=JULY))
    await api.archives.store(archive.id, [NewPassage(text, created_at=at) for text, at in said])
    await api.tools.create(NewTool("pass", {"name": "arrived", "description": "kitten", "parameters": {}}))
    await api.tools.create(NewTool("pass", {"name": "drive", "description": "feline", "parameters": {}}))
    rig.kelpie.runtime.embeddings.asked = True
    await rig.embed_all()
    return agent_id


@pytest.fixture
async def client(rig: EmbeddingRig) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(rig.kelpie) as opened:
        yield opened


def checked(found: Mapping[str, Any], neighbours: bool = True) -> None:
    """That the reasons of each text are those that it has; what has none is no result or comes by its vector."""
    for text, reasons in REASONS.items():
        expected = reasons if neighbours else reasons - {"neighbour"}
        assert expected <= set(found[text]), (text, found[text])
    assert "words" not in found[OTHER] and "date" not in found[OTHER] and "words" not in found[BESIDE]
    assert neighbours or not any("neighbour" in matched for matched in found.values())


async def posted(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


async def test_the_routes_say_why(client: httpx.AsyncClient, agent_id: AgentId) -> None:
    asked = {"query": QUERY, "limit": 20}
    found = await posted(client, "/v1/messages/search", agent_id=agent_id, **asked)
    checked({each["content"]: each["matched"] for each in found})
    found = await posted(client, "/v1/agents/messages/search", agent_id=agent_id, **asked)
    checked({each["embedded_text"]: each["matched"] for each in found})
    found = await posted(client, "/v1/passages/search", agent_id=agent_id, **asked)
    checked({each["passage"]["text"]: each["metadata"]["matched"] for each in found})
    answer = await client.get(f"/v1/agents/{agent_id}/archival-memory/search", params={"query": QUERY, "top_k": 20})
    checked({each["content"]: each["matched"] for each in answer.json()["results"]})
    found = (await posted(client, f"/v1/agents/{agent_id}/facts/search", **asked))["results"]
    checked({each["statement"]: each["relevance"]["matched"] for each in found}, neighbours=False)
    tools = await posted(client, "/v1/tools/search", query="arrived kitten", limit=5)
    by_name = {each["tool"]["name"]: each["matched"] for each in tools}
    assert by_name["arrived"] == ["words", "vector"] and by_name["drive"] == ["vector"]


async def run(rig: EmbeddingRig, agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, precomputed and run as in a turn."""
    runtime, world, builtin = rig.kelpie.runtime, rig.kelpie.world, BUILTINS[tool]
    call = CallContext(agent, world.clock.now(), world.ids.uuid())
    assert builtin.precompute is not None and builtin.run is not None
    made = await builtin.precompute(Precompute(world.database, runtime.embeddings), call, arguments)
    ready, work = replace(call, precomputed=made), builtin.run
    outcome = await world.database.transact(lambda tx: work(tx, ready, arguments))
    return json.loads(outcome.text)


async def test_the_tools_of_agents_say_why(rig: EmbeddingRig, agent_id: AgentId) -> None:
    agent = await rig.kelpie.world.database.read(lambda tx: agents.get(tx, agent_id))
    for tool, limit, neighbours in (
        ("conversation_search", "limit", True),
        ("archival_memory_search", "top_k", True),
        ("fact_search", "limit", False),
    ):
        answer = await run(rig, agent, tool, query=QUERY, **{limit: 20})
        assert answer["search_mode"] == "hybrid"
        texts = {each.get("content") or each["statement"]: each["relevance"]["matched"] for each in answer["results"]}
        checked(texts, neighbours)


async def test_without_a_model_words_neighbours_and_dates_are_said(rig: EmbeddingRig, agent_id: AgentId) -> None:
    rig.model.broken = True
    async with client_of(rig.kelpie) as client:
        answer = await client.post("/v1/messages/search", json={"query": QUERY, "agent_id": agent_id})
    (only,) = answer.json()
    assert (only["content"], only["matched"]) == (ARRIVED, ["words", "date"])
    assert answer.headers["x-kelpie-search-mode"] == "fts" and "broken" in answer.headers["x-kelpie-search-note"]
