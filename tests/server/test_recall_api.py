"""Messages of all agents: read through, searched, handed in; and an agent's model outside of a turn."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from letta_client.types.message_search_response import MessageSearchResponse
from pydantic import TypeAdapter

from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.conversations.messages import MessageQuery, MessageSearch
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId, UserId
from tests.server.rig import Puppet, called, make_agent, said

STRANGERS = Caller(
    UserId("user-11111111-0000-4000-8000-000000000001"), OrganizationId("org-11111111-0000-4000-8000-000000000001")
)


async def talk(client: httpx.AsyncClient, puppet: Puppet) -> tuple[str, str]:
    """Two agents that have heard and said something."""
    one, two = [(await make_agent(client, name=name))["id"] for name in ("one", "two")]
    for agent, heard, answer in (
        (one, "the red apple", "noted"),
        (two, "a green apple", "apple it is"),
        (one, "x", "y"),
    ):
        puppet.script.append(said(answer))
        await client.post(f"/v1/agents/{agent}/messages", json={"input": heard})
    return one, two


async def texts(client: httpx.AsyncClient, **params: Any) -> list[str]:
    answer = await client.get("/v1/messages/", params=params)
    assert answer.status_code == 200, answer.text
    return [m["content"] for m in answer.json() if m["message_type"] != "system_message"]


async def test_the_messages_of_all_agents(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await talk(client, puppet)
    everything = ["the red apple", "noted", "a green apple", "apple it is", "x", "y"]
    assert await texts(client) == everything
    assert await texts(client, limit=3) == everything[3:]  # the newest, in the order they were said
    rows = (await client.get("/v1/messages/")).json()
    ids = {m["content"]: m["id"] for m in rows}
    assert await texts(client, after=ids["a green apple"]) == everything[3:]
    assert await texts(client, before=ids["a green apple"]) == everything[:2]
    assert await texts(client, after=ids["noted"], before=ids["x"], order="asc", limit=1) == ["a green apple"]
    assert len(rows) == 8 and await texts(client, limit=3, order="asc") == ["the red apple"]
    assert await texts(client, conversation_id="default") == everything
    assert await texts(client, conversation_id="conv-00000000-0000-4000-8000-0000000000ff") == []
    assert await texts(client, include_return_message_types="user_message") == everything[::2]
    assert (await client.get("/v1/messages/", params={"after": "bogus"})).status_code == 404
    assert (await client.get("/v1/messages/", params={"limit": -1})).status_code == 422
    assert (await client.get("/v1/messages/", params={"limit": 0})).json() == []


async def test_searching_all_agents(client: httpx.AsyncClient, puppet: Puppet) -> None:
    one, two = await talk(client, puppet)

    async def found(path: str = "/v1/messages/search", **body: Any) -> list[dict[str, Any]]:
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    hits = await found(query="green apple")
    TypeAdapter(MessageSearchResponse).validate_python(hits)
    assert hits[0]["content"] == "a green apple" and hits[0]["agent_id"] == two
    assert {hit["content"] for hit in hits} == {"a green apple", "the red apple", "apple it is"}
    assert [hit["content"] for hit in await found(query="apple", agent_id=one)] == ["the red apple"]
    assert len(await found(query="apple", limit=1)) == 1
    assert await found(query="apple", conversation_id="conv-00000000-0000-4000-8000-0000000000ff") == []
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert await found(query="apple", start_date=later) == [] and len(await found(query="apple", end_date=later)) == 3
    assert await found(query='"; DROP TABLE messages; --') == []

    ranked = await found("/v1/agents/messages/search", query="apple", roles=["assistant"], search_mode="fts")
    assert [(hit["embedded_text"], hit["fts_rank"], hit["vector_rank"]) for hit in ranked] == [("apple it is", 1, None)]
    assert ranked[0]["message"]["role"] == "assistant"
    newest = await found("/v1/agents/messages/search", limit=2)
    assert [hit["message"]["content"][0]["text"] for hit in newest] == ["y", "x"]
    assert (await client.post("/v1/messages/search", json={})).status_code == 422
    assert (await client.post("/v1/messages/search", json={"query": "x", "search_mode": "no"})).status_code == 422


async def test_pages_and_days_of_a_search(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await talk(client, puppet)

    async def found(**body: Any) -> list[str]:
        answer = await client.post("/v1/messages/search", json={"query": "apple", **body})
        assert answer.status_code == 200, answer.text
        return [hit["content"] for hit in answer.json()]

    everything = await found()
    assert [await found(limit=2, page=page) for page in range(3)] == [everything[:2], everything[2:], []]
    body = {"limit": 2, "page": 1, "query": ""}
    newest = (await client.post("/v1/agents/messages/search", json=body)).json()
    assert [(hit["embedded_text"], hit["fts_rank"]) for hit in newest] == [("apple it is", 3), ("a green apple", 4)]
    today, tomorrow = (str((datetime.now(UTC) + timedelta(days=n)).date()) for n in (0, 1))
    assert len(await found(start_date=today, end_date=today)) == 3, "a day as an end is meant as a whole"
    for wrong in ({"limit": 1000, "page": 10}, {"start_date": tomorrow, "end_date": today}):
        answer = await client.post("/v1/messages/search", json={"query": "apple", **wrong})
        assert answer.status_code == 400, answer.text
    for wrong in ({"page": -1}, {"limit": 0}, {"end_date": "2023-02-29"}, {"start_date": "soon"}):
        assert (await client.post("/v1/messages/search", json={"query": "apple", **wrong})).status_code == 422


async def test_a_search_says_how_it_was_made(client: httpx.AsyncClient, puppet: Puppet) -> None:
    await talk(client, puppet)
    for path in ("/v1/messages/search", "/v1/agents/messages/search"):
        for mode in ("vector", "hybrid"):
            answer = await client.post(path, json={"query": "apple", "search_mode": mode})
            assert len(answer.json()) == 3  # without a model for meanings, words find it
            assert answer.headers["x-kelpie-search-mode"] == "fts"
            assert "embedding model" in answer.headers["x-kelpie-search-note"]
        answer = await client.post(path, json={"query": "apple", "search_mode": "fts"})
        assert answer.headers["x-kelpie-search-mode"] == "fts" and "x-kelpie-search-note" not in answer.headers


async def test_messages_from_elsewhere(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = (await make_agent(client))["id"]
    body = {
        "provider": "openai",
        "model": "m",
        "request_messages": [{"role": "user", "content": "from elsewhere"}],
        "response_dict": {"content": "answered elsewhere"},
    }
    path = f"/v1/agents/{agent}/messages/capture"
    assert (await client.post(path, json=body)).json() == {"success": True, "messages_created": 2, "run_ids": []}
    assert await texts(client) == ["from elsewhere", "answered elsewhere"]
    assert len((await client.post("/v1/messages/search", json={"query": "elsewhere"})).json()) == 2
    await client.post(f"/v1/agents/{agent}/messages", json={"input": "hi"})
    assert [p.message.text for p in puppet.asked[-1].messages] == ["hi"]  # history, not what the model sees
    for wrong in ({"role": "robot", "content": "x"}, {"role": "user"}, {"role": "user", "content": ""}):
        assert (await client.post(path, json={**body, "request_messages": [wrong]})).status_code == 400
    unknown = "/v1/agents/agent-00000000-0000-4000-8000-0000000000ff/messages/capture"
    assert (await client.post(unknown, json=body)).status_code == 404
    assert len(await texts(client)) == 4


async def test_another_organisation_finds_nothing(client: httpx.AsyncClient, puppet: Puppet, kelpie: Kelpie) -> None:
    one, _ = await talk(client, puppet)
    theirs = kelpie.api(STRANGERS)
    assert await theirs.message_search.page(MessageQuery()) == []
    for words in ("apple", ""):
        assert (await theirs.message_search.search(MessageSearch(words))).found == []
    ours = (await client.get("/v1/messages/")).json()[0]["id"]
    for attempt in (
        theirs.message_search.page(MessageQuery(after=ours)),
        theirs.message_search.add(AgentId(one), ()),
        theirs.model_previews.payload(AgentId(one), ()),
        theirs.model_previews.generate(AgentId(one), "x"),
    ):
        with pytest.raises(NotFound):
            await attempt


# --- outside of a turn ------------------------------------------------------------------------------------------------


async def test_what_a_message_would_send(client: httpx.AsyncClient, puppet: Puppet, monkeypatch: Any) -> None:
    agent = (await make_agent(client, system="Be brief."))["id"]
    await client.post(f"/v1/agents/{agent}/messages", json={"input": "before"})
    asked = len(puppet.asked)
    seen: list[Any] = []

    async def payload(request: Any) -> bytes:
        seen.append(request)
        return b'{"model":"m"}'

    path = f"/v1/agents/{agent}/messages/preview-raw-payload"
    assert (await client.post(path, json={"input": "hi"})).status_code == 400  # this provider shows nothing
    monkeypatch.setattr(puppet, "payload", payload, raising=False)
    answer = await client.post(path, json={"input": "hi"})
    assert answer.status_code == 200 and answer.json() == {"model": "m"}
    assert [p.message.text for p in seen[0].messages] == ["before", "ok", "hi"]
    assert seen[0].system.startswith("Be brief.") and len(seen[0].tools) == 3 and not seen[0].deltas
    assert len(puppet.asked) == asked and len(await texts(client)) == 2  # nothing was asked, nothing written

    made = (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]
    body = {"input": "hi", "streaming": False}
    assert (await client.post(f"/v1/conversations/{made}/messages/preview-raw-payload", json=body)).status_code == 200
    assert [p.message.text for p in seen[1].messages] == ["hi"]
    default = "/v1/conversations/default/messages/preview-raw-payload"
    assert (await client.post(default, json={**body, "agent_id": agent})).status_code == 200
    assert [p.message.text for p in seen[2].messages] == ["before", "ok", "hi"]
    assert (await client.post(default, json=body)).status_code == 404


async def test_a_question_without_memory(client: httpx.AsyncClient, puppet: Puppet) -> None:
    agent = (await make_agent(client))["id"]
    path = f"/v1/agents/{agent}/generate"
    puppet.script.append(said("hello"))
    answer = (await client.post(path, json={"prompt": "greet", "system_prompt": "Be short."})).json()
    assert (answer["content"], answer["model"], answer["usage"]["total_tokens"]) == ("hello", "model", 12)
    assert puppet.asked[-1].system == "Be short." and puppet.asked[-1].tools == ()
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    puppet.script.append(called("give_answer", '{"a": "b"}'))
    shaped = (await client.post(path, json={"prompt": "x", "response_schema": schema})).json()
    assert shaped["content"] == '{"a": "b"}' and puppet.asked[-1].tool_choice == "give_answer"
    assert (await client.post(path, json={"prompt": "x", "response_schema": {"type": "array"}})).status_code == 400
    assert (await client.post(path, json={"prompt": "x", "override_model": "fake/none"})).status_code == 404
    assert (await client.post(path, json={})).status_code == 422
    assert await texts(client) == [] and (await client.get("/v1/runs/")).json() == []
