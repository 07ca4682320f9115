"""Agents that work together, as users of letta-client see them: over the wires of OpenAI and Anthropic."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, WireModel

ASK = "send_message_to_agent_and_wait_for_reply"
ASK_TAGGED = "send_message_to_agents_matching_tags"
TELL = "send_message_to_agent_async"
WAYS = ("whole", "tokens")


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Any]:
    async with sdk_client("async", server.url) as made:
        yield made


async def new(client: Any, handle: str, name: str, **more: Any) -> Any:
    wish = {"include_multi_agent_tools": True}  # which the server knows and the SDK has no name for
    return await got(client.agents.create(name=name, model=handle, include_base_tools=False, extra_body=wish, **more))


async def say(client: Any, agent: Any, way: str = "whole", text: str = "go") -> tuple[list[Any], Any]:
    """The messages of a turn, and what it used."""
    if way == "whole":
        answer = await got(client.agents.messages.create(agent.id, input=text))
        return answer.messages, answer.usage
    sent = client.agents.messages.create(agent.id, input=text, streaming=True, stream_tokens=True)
    events = await every(await got(sent))
    usage = next(one for one in events if one.message_type == "usage_statistics")
    return [one for one in events if one.message_type not in ("stop_reason", "usage_statistics", "ping")], usage


def returned(messages: list[Any]) -> list[tuple[str, Any]]:
    found = [one for one in messages if one.message_type == "tool_return_message"]
    return [(one.status, one.tool_return) for one in found]


async def ended_run(client: Any, agent: Any) -> Any:
    """The newest run of an agent, once it has one and it is over."""
    async with asyncio.timeout(30):
        while True:
            runs = await every(client.runs.list(agent_id=agent.id, limit=1))
            if runs and runs[0].status not in ("created", "running"):
                return runs[0]
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_one_asks_another(client: Any, model: WireModel, handle: str, way: str) -> None:
    ben = await new(client, handle, "Ben")
    ann = await new(client, handle, "Ann")
    assert sorted(tool.name for tool in ann.tools) == sorted((ASK, ASK_TAGGED, TELL))
    model.will([(ASK, {"message": "How much is it?", "other_agent_id": ben.id})], "It is four.", "Four!")
    messages, _ = await say(client, ann, way)
    ((status, text),) = returned(messages)
    assert status == "success" and json.loads(text) == {"agent_id": ben.id, "response": ["It is four."]}
    said = "".join(one.content for one in messages if one.message_type == "assistant_message")
    assert said == "Four!"
    asked = json.dumps(model.asked[1])
    assert "How much is it?" in asked and ann.id in asked
    heard = [m for m in await every(client.agents.messages.list(ben.id)) if m.message_type == "user_message"]
    assert [(m.sender_id, m.name) for m in heard] == [(ann.id, "Ann")]


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_ring_and_a_failure_are_told_to_the_model(client: Any, model: WireModel, handle: str) -> None:
    ann, ben = await new(client, handle, "Ann", tags=[handle]), await new(client, handle, "Ben", tags=[handle])
    model.will(
        [(ASK, {"message": "You?", "other_agent_id": ben.id})],
        [(ASK, {"message": "No, you?", "other_agent_id": ann.id})],
        "I cannot say.",
        [(ASK_TAGGED, {"message": "All?", "match_all": [handle], "match_some": []})],
        "Me.",
        "Done.",
    )
    messages, _ = await say(client, ann)
    (_, first), (_, second) = returned(messages)
    assert json.loads(first)["response"] == ["I cannot say."]
    assert json.loads(second) == [{"agent_id": ben.id, "response": ["Me."]}]
    refused = returned(await every(client.agents.messages.list(ben.id)))
    assert [status for status, _ in refused] == ["error"] and "is waiting for your answer" in refused[0][1]
    await got(client.agents.delete(ben.id))
    model.will([(ASK, {"message": "Still there?", "other_agent_id": ben.id})], "Gone.")
    messages, _ = await say(client, ann)
    assert returned(messages)[0][0] == "error" and messages[-1].content == "Gone."


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_message_without_waiting_is_a_run_of_the_other(client: Any, model: WireModel, handle: str) -> None:
    ben = await new(client, handle, "Ben")
    ann = await new(client, handle, "Ann", include_base_tool_rules=True)
    model.will([(TELL, {"message": "The door is open.", "other_agent_id": ben.id})], "Noted.")
    messages, _ = await say(client, ann)
    assert returned(messages)[0][0] == "success"
    run = await ended_run(client, ben)
    assert run.status == "completed" and run.id in returned(messages)[0][1]
    user, answer = await every(client.runs.messages.list(run.id, order="asc"))
    assert user.sender_id == ann.id and user.content.endswith("The door is open.") and answer.content == "Noted."


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_companion_keeps_the_memory(client: Any, model: WireModel, handle: str, way: str) -> None:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    made = client.agents.create(name="Main", model=handle, enable_sleeptime=True, memory_blocks=blocks)
    main = await got(made)
    group = main.managed_group
    assert group.manager_type == "sleeptime" and group.sleeptime_agent_frequency == 5
    (companion_id,) = group.agent_ids
    companion = await got(client.agents.retrieve(companion_id, include=["agent.blocks", "agent.tools"]))
    assert companion.name == "Main-sleeptime" and companion.agent_type == "sleeptime_agent"
    assert [block.label for block in companion.memory.blocks] == ["human", "memory_persona"]
    edit = ("memory_insert", {"label": "human", "new_string": "Likes tea."})
    model.will([("send_message", {"message": "Nice."})], [edit], [("memory_finish_edits", {})])
    messages, usage = await say(client, main, way, "I like tea.")
    assert [m.content for m in messages if m.message_type == "assistant_message"] == ["Nice."]
    run = await ended_run(client, companion)
    assert usage.run_ids == [run.id] and run.status == "completed"
    model.will([("send_message", {"message": "Tea."})])
    _, usage = await say(client, main, way, "What do I like?")
    assert usage.run_ids is None and "Likes tea." in json.dumps(model.asked[0])
    off = await got(client.agents.update(main.id, enable_sleeptime=False))
    assert off.enable_sleeptime is False and off.managed_group.id == group.id
    await got(client.agents.delete(main.id))
    assert await every(client.agents.list(name="Main-sleeptime")) == []


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_group_is_spoken_to(client: Any, model: WireModel, server: Served, handle: str) -> None:
    ann, ben = await new(client, handle, "Ann"), await new(client, handle, "Ben")
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as raw:
        made = await raw.post("/v1/groups/", json={"agent_ids": [ann.id, ben.id], "description": "two"})
        path = f"/v1/groups/{made.json()['id']}/messages"
        model.will("One.", "Two.")
        answer = (await raw.post(path, json={"input": "Count."})).json()
        assert [(m["name"], m["sender_id"], m["content"]) for m in answer["messages"]] == [
            ("Ann", ann.id, "One."),
            ("Ben", ben.id, "Two."),
        ]
        assert answer["stop_reason"]["stop_reason"] == "end_turn" and answer["usage"]["step_count"] == 2
        assert {m["group_id"] for m in answer["messages"]} == {made.json()["id"]}
        assert "One." in json.dumps(model.asked[1])
        model.will("Three.", "Four.")
        streamed = (await raw.post(f"{path}/stream", json={"input": "Go on."})).text
        frames = [json.loads(line[6:]) for line in streamed.split("\n") if line.startswith("data: {")]
        assert [f["content"] for f in frames if f["message_type"] == "assistant_message"] == ["Three.", "Four."]
        assert [f["message_type"] for f in frames][-2:] == ["stop_reason", "usage_statistics"]
        assert streamed.rstrip().endswith("data: [DONE]")
        listed = (await raw.get(path, params={"limit": 50, "order": "asc"})).json()
        spoken = [m["content"] for m in listed if m["message_type"] == "assistant_message"]
        assert spoken == ["One.", "Two.", "Three.", "Four."]
        await raw.post(f"/v1/agents/{ben.id}/stop")
        model.will("Five.")
        answer = (await raw.post(path, json={"input": "And?"})).json()
        assert [f["agent_id"] for f in answer["kelpie_failures"]] == [ben.id] and len(answer["messages"]) == 1
        for refused in ({"stream_tokens": True}, {"background": True}, {"override_model": handle}):
            assert (await raw.post(f"{path}/stream", json={"input": "x", **refused})).status_code == 400, refused
        approval = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "c", "approve": True}]}
        answer = await raw.post(path, json={"messages": [approval]})
        assert answer.status_code == 400 and "not to its group" in answer.text
