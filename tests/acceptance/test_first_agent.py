"""What a newcomer does with letta-client in the first hour: make an agent, talk, watch it remember, look around.

Written once for both clients of the SDK and both agent types; the SDK's own models check every answer strictly.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from letta_client.types import BlockResponse

from tests.acceptance.newcomer import BLOCKS, INCLUDES, TYPES, block, history, new_agent, plain, say
from tests.acceptance.sdk import KINDS, every, got, sdk_client
from tests.acceptance.served import Served, served

DICE = '''
def roll_dice(sides: int) -> str:
    """Roll a dice.

    Args:
        sides: How many sides it has.
    """
    return "4"
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(params=KINDS)
async def client(request: pytest.FixtureRequest, server: Served) -> AsyncIterator[Any]:
    async with sdk_client(request.param, server.url) as made:
        yield made


@pytest.fixture(params=TYPES)
async def agent(request: pytest.FixtureRequest, client: Any) -> Any:
    return await new_agent(client, request.param)


def types(messages: list[Any], *without: str) -> list[str]:
    return [message.message_type for message in messages if message.message_type not in without]


async def test_an_agent_reads_back_as_it_was_made(client: Any, agent: Any) -> None:
    found = await got(client.agents.retrieve(agent.id, include=INCLUDES))
    assert plain(found) == plain(agent)
    assert {one.label: one.value for one in found.blocks} == {one["label"]: one["value"] for one in BLOCKS}
    assert found.model == "kelpie/demo" and found.tags == ["newcomer"]
    assert [(one.key, one.value) for one in found.secrets] == [("TOKEN", "a b c")]
    assert agent.id in [one.id for one in await every(client.agents.list(name="First"))]
    assert (await got(client.agents.retrieve(agent.id))).tools == []  # relations come only when asked for


async def test_a_tool_edits_the_memory(client: Any, agent: Any) -> None:
    answer = await say(client, agent, "remember that I like tea")
    assert types(answer.messages, "reasoning_message") == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert "tea" in (await block(client, agent, "human")).value
    assert (await block(client, agent, "persona")).value == BLOCKS[1]["value"]
    call, result = (one for one in answer.messages if one.message_type.startswith("tool_"))
    assert result.tool_call_id == call.tool_call.tool_call_id and result.status == "success"
    assert answer.usage.step_count == 2 and answer.usage.total_tokens > 0
    stored = await history(client, agent)
    assert [one for one in stored if one.run_id == call.run_id and one.message_type != "user_message"] == (
        answer.messages
    )
    told = await say(client, agent, "what do you know about me?")
    assert "tea" in told.messages[-1].content


async def test_a_stream_of_steps_is_what_is_stored(client: Any, agent: Any) -> None:
    events = await every(await got(client.agents.messages.create(agent.id, input="I like milk", streaming=True)))
    said = [one for one in events if one.message_type not in ("ping", "stop_reason", "usage_statistics")]
    assert types(events)[-2:] == ["stop_reason", "usage_statistics"]
    stored = {(one.id, one.otid): one for one in await history(client, agent)}
    assert said and all(stored[one.id, one.otid] == one for one in said)


async def test_streamed_tokens_add_up_to_what_is_stored(client: Any, agent: Any) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        stream = client.agents.messages.stream(agent.id, input="I like rain", stream_tokens=True)
    events = await every(stream)
    assert types(events)[-2:] == ["stop_reason", "usage_statistics"]
    added: dict[tuple[str, str], str] = {}
    for event in events:
        piece = piece_of(event)
        if piece is not None:
            key = (event.otid, event.message_type)
            added[key] = added.get(key, "") + piece
    stored = {(one.otid, one.message_type): piece_of(one) for one in await history(client, agent)}
    assert {kind for _, kind in added} >= {"tool_call_message", "tool_return_message", "assistant_message"}
    assert added == {key: stored[key] for key in added}
    assert len([one for one in events if one.message_type == "assistant_message"]) > 1


def piece_of(event: Any) -> str | None:
    """The text of a message or of a part of one."""
    match event.message_type:
        case "assistant_message":
            return event.content
        case "reasoning_message":
            return event.reasoning
        case "tool_call_message":
            return (event.tool_call.name or "") + (event.tool_call.arguments or "")
        case "tool_return_message":
            return event.tool_return
        case _:
            return None


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_stream_ends_with_reason_usage_and_done(server: Served, agent: Any, tokens: bool) -> None:
    body = {"input": "hello", "stream_tokens": tokens}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http:
        answer = await http.post(f"/v1/agents/{agent.id}/messages/stream", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    kinds = [json.loads(frame)["message_type"] for frame in frames[:-1]]
    assert kinds[-2:] == ["stop_reason", "usage_statistics"] and kinds.count("stop_reason") == 1


async def test_messages_page_without_loss_or_double(client: Any, agent: Any) -> None:
    for text in ("one", "two", "three"):
        await say(client, agent, text)
    whole = await history(client, agent)
    paged = await every(client.agents.messages.list(agent.id, order="asc", limit=2))
    assert paged == whole
    assert [one.content for one in whole if one.message_type == "user_message" and one.otid][-3:] == (
        ["one", "two", "three"]
    )
    newest = (await got(client.agents.messages.list(agent.id, limit=2))).items
    assert newest == whole[-len(newest) :]


async def test_a_block_has_two_paths(client: Any, agent: Any) -> None:
    human = await block(client, agent, "human")
    assert await got(client.blocks.retrieve(human.id)) == human
    changed = await got(client.blocks.update(human.id, value="Name: Bea", description="who they are"))
    assert await block(client, agent, "human") == changed
    changed = await got(client.agents.blocks.update("human", agent_id=agent.id, value="Name: Cleo"))
    assert changed.id == human.id and changed.description == "who they are"
    assert await got(client.blocks.retrieve(human.id)) == changed
    older = await got(client.get(f"/v1/agents/{agent.id}/blocks/human", cast_to=BlockResponse))
    assert older == changed
    assert {one.label for one in await every(client.agents.blocks.list(agent.id))} == {"human", "persona"}
    told = await say(client, agent, "what is my name?")
    assert "Cleo" in told.messages[-1].content  # the very next prompt holds the edit


async def test_a_block_is_hung_on_and_taken_off(client: Any, agent: Any) -> None:
    made = await got(client.blocks.create(label="hobby", value="chess"))
    with_it = await got(client.agents.blocks.attach(made.id, agent_id=agent.id))
    assert made.id in [one.id for one in with_it.blocks]
    assert "chess" in (await say(client, agent, "what do you know about me?")).messages[-1].content
    without = await got(client.agents.blocks.detach(made.id, agent_id=agent.id))
    assert made.id not in [one.id for one in without.blocks]
    assert (await got(client.blocks.retrieve(made.id))).value == "chess"


async def test_tools_are_listed_attached_renewed_and_detached(client: Any, agent: Any) -> None:
    builtin = {one.name: one for one in await every(client.tools.list(limit=100))}
    assert {one.name for one in agent.tools} <= builtin.keys()
    dice = await got(client.tools.upsert(source_code=DICE))
    again = await got(client.tools.upsert(source_code=DICE.replace("Roll a dice", "Throw a dice")))
    assert again.id == dice.id and again.description == "Throw a dice."
    assert await got(client.tools.retrieve(dice.id)) == again
    await got(client.agents.tools.attach(dice.id, agent_id=agent.id))
    await got(client.agents.tools.attach(dice.id, agent_id=agent.id))  # twice is as good as once
    names = [one.name for one in await every(client.agents.tools.list(agent.id, limit=50))]
    assert sorted(names) == sorted([*(one.name for one in agent.tools), "roll_dice"])
    answer = await say(client, agent, 'use roll_dice {"sides": 6}')
    results = [one for one in answer.messages if one.message_type == "tool_return_message"]
    assert len(results) == 1 and results[0].name == "roll_dice"
    await got(client.agents.tools.detach(dice.id, agent_id=agent.id))
    names = [one.name for one in await every(client.agents.tools.list(agent.id, limit=50))]
    assert sorted(names) == sorted(one.name for one in agent.tools)
    unknown = await say(client, agent, '!script [{"calls": [{"name": "roll_dice", "arguments": {"sides": 6}}]}]')
    refused = next(one for one in unknown.messages if one.message_type == "tool_return_message")
    assert refused.status == "error"  # a tool taken away is not run, even if the model asks for it


async def test_a_turn_leaves_a_run_with_its_steps(client: Any, agent: Any) -> None:
    answer = await say(client, agent, "remember that I like snow")
    run_id = answer.messages[0].run_id
    run = await got(client.runs.retrieve(run_id))
    assert (run.agent_id, run.status, run.stop_reason) == (agent.id, "completed", "end_turn")
    assert run.completed_at >= run.created_at
    assert run_id in [one.id for one in await every(client.runs.list(agent_id=agent.id))]
    steps = await every(client.runs.steps.list(run_id, order="asc"))
    assert len(steps) == answer.usage.step_count == 2
    assert {one.step_id for one in answer.messages} == {one.id for one in steps}
    assert sum(one.total_tokens for one in steps) == answer.usage.total_tokens
    assert await got(client.steps.retrieve(steps[0].id)) == steps[0]
    of_run = await every(client.runs.messages.list(run_id, order="asc"))
    assert [one for one in of_run if one.message_type != "user_message"] == answer.messages
    usage = await got(client.runs.usage.retrieve(run_id))
    assert usage.total_tokens == answer.usage.total_tokens
