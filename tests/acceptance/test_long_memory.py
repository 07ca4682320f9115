"""A hundred turns: what was told early left the prompt long ago, and the agent still finds it through its tools.

The model plays a script over real HTTP; the embeddings are real, so that a question in other words finds the fact.
"""

import asyncio
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kelpie.world.embedding.minilm import MiniLm
from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import (
    ANTHROPIC,
    OPENAI,
    Call,
    WireModel,
    anthropic_wire,
    openai_wire,
    wire_model,
    wires,
)
from tests.parts import lacks

TURNS = {OPENAI: 100, ANTHROPIC: 40}
WINDOW = 2_500
FACTS = {
    2: "My daughter Hanna is allergic to peanuts.",
    3: "I parked the car on level four of the garage at the harbour.",
    5: "The code word for the safe is heliotrope.",
}
SAFE, FILED = 5, "Safe: heliotrope opens it."
STREAMING = cycle((False, True))  # every other question
FILLER = "The weather report for day {number} says clouds and some wind from the west. " * 5
FOUND_S = 240.0
NUTS = "kid sick after nuts"  # no word of it was ever said, so that words alone do not find it


class Friend(WireModel):
    """Whenever it is asked to sum up, it has heard of nothing but the weather."""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        if body.get("tools"):
            return super().answer(path, body)
        wire = openai_wire if path.endswith("/chat/completions") else anthropic_wire
        return wire("We talked about the weather.", 0, stream=bool(body.get("stream")))


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model(Friend()) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, model: WireModel) -> Iterator[Served]:
    with served(tmp_path / "data", **wires(model.url)) as running:
        yield running


async def _told(client: Any, model: WireModel, agent_id: str, called: Call) -> Any:
    """Asks something that makes the agent look for it; gives what it found."""
    model.will([called], "here it is")
    streaming = next(STREAMING)
    answer = await got(client.agents.messages.create(agent_id, input="do you remember?", streaming=streaming))
    messages = await every(answer) if streaming else answer.messages
    (returned,) = [one for one in messages if one.message_type == "tool_return_message"]
    assert returned.status == "success", returned.tool_return
    return json.loads(returned.tool_return)


def _shown(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"])


async def _found(client: Any, model: WireModel, agent_id: str, called: Call, wanted: str) -> Any:
    told = await _told(client, model, agent_id, called)
    contents = [result["content"] for result in told["results"]]
    assert wanted in contents, (called, contents, told["message"])
    assert wanted in _shown(model.asked[-1]), "the model reads what was found"
    return told


async def test_facts_told_early_are_found_after_compaction_and_restart(server: Served, model: WireModel) -> None:
    await _tell_and_look(server, model, by_meaning=False)


@pytest.mark.soak  # beside other tests the machine embeds too slowly, and search then goes by words, as it should
async def test_facts_told_early_are_found_by_their_meaning(server: Served, model: WireModel, tmp_path: Path) -> None:
    if lacking := MiniLm(None, tmp_path / "models").why_not():
        lacks("model", lacking)
    await _tell_and_look(server, model, by_meaning=True)


async def _tell_and_look(server: Served, model: WireModel, *, by_meaning: bool) -> None:
    tools = ["conversation_search", "conversation_search_date", "archival_memory_insert", "archival_memory_search"]
    fields = {"include_base_tools": False, "tools": tools, "context_window_limit": WINDOW, "system": "Be brief."}
    async with sdk_client("async", server.url) as client:
        made = {wire: await got(client.agents.create(name="Old friend", model=wire, **fields)) for wire in TURNS}
        agents = {wire: agent.id for wire, agent in made.items()}
        for wire, agent_id in agents.items():
            await _talk(client, model, agent_id, TURNS[wire])
            await _look(client, model, agent_id)
        if by_meaning:
            await _embedded(client, agents[OPENAI])
            await _look_by_meaning(client, model, agents[OPENAI])
    server.restart()
    async with sdk_client("async", server.url) as client:
        for agent_id in agents.values():
            await _look(client, model, agent_id)
            model.will("hello again")
            answer = await got(client.agents.messages.create(agent_id, input="hi"))
            assert answer.messages[-1].content == "hello again"
        if by_meaning:
            await _look_by_meaning(client, model, agents[OPENAI])


async def _talk(client: Any, model: WireModel, agent_id: str, turns: int) -> None:
    model.will()
    for number in range(turns):
        if number == SAFE:
            model.will([("archival_memory_insert", {"content": FILED, "tags": ["safe"]})], "noted")
        said = FACTS.get(number) or FILLER.format(number=number)
        await got(client.agents.messages.create(agent_id, input=said))
    shown = _shown(model.asked[-1])
    assert not any(fact in shown for fact in FACTS.values()), "they left the prompt long ago"
    rows = await every(await got(client.agents.messages.list(agent_id, limit=1000)))
    heard = [row.content for row in rows if row.message_type == "user_message" and "system_alert" not in row.content]
    assert len(heard) == turns and heard[2] == FACTS[2], "the history keeps every word, in order"


async def _look(client: Any, model: WireModel, agent_id: str) -> None:
    """By the words that were used, by date, and what the agent put away itself."""
    by_words = ("conversation_search", {"query": "Hanna peanuts"})
    await _found(client, model, agent_id, by_words, FACTS[2])
    today = ("conversation_search_date", {"start_date": "last 7 days", "page": 0})
    listed = await _found(client, model, agent_id, today, FACTS[3])
    assert listed["more"] is True and listed["results"][0]["content"] != FACTS[3]
    filed = ("archival_memory_search", {"query": "heliotrope", "tags": ["safe"]})
    await _found(client, model, agent_id, filed, FILED)
    hits = await got(client.messages.search(query="harbour garage", agent_id=agent_id))
    assert hits[0].content == FACTS[3]


async def _look_by_meaning(client: Any, model: WireModel, agent_id: str) -> None:
    """In words that were never said."""
    for query, fact in (("which nuts make my kid sick", FACTS[2]), ("where did I leave my vehicle", FACTS[3])):
        asked = ("conversation_search", {"query": query, "limit": 3})
        told = await _found(client, model, agent_id, asked, fact)
        assert told["search_mode"] == "hybrid"
    filed = ("archival_memory_search", {"query": "password of the strongbox"})
    await _found(client, model, agent_id, filed, FILED)


async def _embedded(client: Any, agent_id: str) -> None:
    """Waits until the background has come to the oldest of the messages: it begins with the newest."""
    async with asyncio.timeout(FOUND_S):
        while True:
            hits = await got(client.messages.search(query=NUTS, agent_id=agent_id, search_mode="vector", limit=1))
            if [hit.content for hit in hits] == [FACTS[2]]:
                return
            await asyncio.sleep(1.0)  # between two looks
