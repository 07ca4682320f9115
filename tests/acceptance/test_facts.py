"""Facts from conversations through letta-client, over both wires, streamed and not: true now, and true then."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.acceptance.sdk import every, got
from tests.acceptance.wire_model import HANDLES, WireModel, wire_model

DEADLINE_S = 60.0
FACTS: dict[str, dict[str, Any]] = {
    "I live in Berlin": {"value": "Berlin", "statement": "The user lives in Berlin.", "link": None},
    "I moved to Oslo": {"value": "Oslo", "statement": "The user moved to Oslo.", "link": "update"},
}
REST = {
    "subject": "user", "attribute": "lives in", "one_value": True, "valid_from": None, "valid_until": None,
    "confidence": 0.9, "sources": [1], "replaces": None,
}  # fmt: skip


class Knower(WireModel):
    """Tells the facts in a conversation when it is asked for them, and else what its script says."""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        text = json.dumps(body)
        if "<conversation>" not in text:
            return super().answer(path, body)
        assert ("response_format" if path.endswith("/chat/completions") else "output_config") in body or (
            "JSON schema" in text
        ), "the form of the answer is asked for"
        facts = [{**REST, **fact} for said, fact in FACTS.items() if said in text.partition("<conversation>")[2]]
        told = json.dumps({"entities": [{"name": "user", "kind": "person", "aliases": ["me"]}], "facts": facts})
        self.script.appendleft(told)
        return super().answer(path, body)


@pytest.fixture(scope="module")
def model() -> Iterator[WireModel]:
    with wire_model(Knower()) as made:
        yield made


async def _facts(client: Any, agent_id: str, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await got(client.get(f"/v1/agents/{agent_id}/facts", cast_to=object))
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


async def _search(client: Any, agent_id: str, **body: Any) -> list[str]:
    path = f"/v1/agents/{agent_id}/facts/search"
    found = await got(client.post(path, body={"query": "where does the user live", **body}, cast_to=object))
    return [each["value"] for each in found["results"]]


@pytest.mark.parametrize("handle", HANDLES)
async def test_what_is_true_now_comes_first_and_what_was_true_then_is_told(client: Any, model: Any, handle: str):
    agent = await got(client.agents.create(model=handle, extra_body={"kelpie_facts": {"every_turns": 1}}))
    assert agent.kelpie_facts == {"enabled": True, "every_turns": 1, "model": None}
    await got(client.agents.messages.create(agent.id, input="I live in Berlin"))
    await _facts(client, agent.id, 1)
    then = datetime.now(UTC).isoformat()
    await every(client.agents.messages.create(agent.id, input="I moved to Oslo", streaming=True))
    facts = {each["value"]: each for each in await _facts(client, agent.id, 2)}
    assert facts["Berlin"]["superseded_by"] == facts["Oslo"]["id"] and facts["Oslo"]["link"] == "update"
    assert facts["Berlin"]["valid_until"] == facts["Oslo"]["valid_from"] and not facts["Berlin"]["current"]
    assert await _search(client, agent.id) == ["Oslo", "Berlin"]
    assert await _search(client, agent.id, at=then) == ["Berlin"]
    [entity] = await got(client.get(f"/v1/agents/{agent.id}/entities", cast_to=object))
    assert (entity["name"], entity["aliases"]) == ("user", ["me"])
    await got(client.delete(f"/v1/agents/{agent.id}/facts/{facts['Oslo']['id']}", cast_to=object))
    assert await _search(client, agent.id) == ["Berlin"]
    status = await got(client.get(f"/v1/agents/{agent.id}/facts/status", cast_to=object))
    assert (status["facts"], status["extractions"], status["skipped"], status["last_error"]) == (1, 2, 0, None)
    await got(client.agents.delete(agent.id))
