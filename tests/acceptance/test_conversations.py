"""Conversations as users of letta-client have them: over the wires of OpenAI and Anthropic, streamed and not."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from letta_client import AsyncLetta, ConflictError, NotFoundError

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served, served, wait_for
from tests.acceptance.slow_model import SAID, SlowModel, slow_model
from tests.acceptance.wire_model import ANTHROPIC, HANDLES, OPENAI, WireModel, wires

WAYS = ("whole", "steps", "tokens")
WAIT_S = 60.0
OWN_HUMAN = {"isolated_block_labels": ["human"]}


async def new(client: Any, handle: str) -> Any:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    return await got(client.agents.create(name="Several", model=handle, memory_blocks=blocks))


async def say(client: Any, conversation_id: str, text: str, way: str, **more: Any) -> list[Any]:
    """What a turn in a conversation said; its stream ends as every stream does."""
    if way == "whole":
        path = f"/v1/conversations/{conversation_id}/messages"
        answer = await got(client.post(path, body={"input": text, "streaming": False, **more}, cast_to=object))
        assert answer["stop_reason"]["stop_reason"] == "end_turn"
        return [one["content"] for one in answer["messages"] if one["message_type"] == "assistant_message"]
    tokens = way == "tokens"
    events = await every(
        client.conversations.messages.create(conversation_id, input=text, stream_tokens=tokens, **more)
    )
    assert [one.message_type for one in events[-2:]] == ["stop_reason", "usage_statistics"]
    assert events[-2].stop_reason == "end_turn"
    return ["".join(one.content for one in events if one.message_type == "assistant_message")]


def shown(asked: dict[str, Any]) -> str:
    return json.dumps(asked)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_two_conversations_know_nothing_of_each_other(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    agent = await new(client, handle)
    one = await got(client.conversations.create(agent_id=agent.id, extra_body=OWN_HUMAN))
    other = await got(client.conversations.create(agent_id=agent.id))
    insert = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
    model.will([insert], "noted")
    assert (await say(client, one.id, "I like tea", way))[-1] == "noted"
    assert "Likes tea" in shown(model.asked[1]), "the next step sees the edit"
    model.will("unknown", "neither")
    assert await say(client, other.id, "what do I like?", way) == ["unknown"]
    assert await say(client, "default", "and here?", way, agent_id=agent.id) == ["neither"]
    assert all("Likes tea" not in shown(asked) for asked in model.asked)
    assert (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value == "Name: Ada"
    (copy,) = (await got(client.conversations.retrieve(one.id))).isolated_block_ids
    assert (await got(client.blocks.retrieve(copy))).value == "Name: Ada\nLikes tea"
    listed = await every(client.conversations.messages.list(one.id, order="asc"))
    assert [each.content for each in listed if each.message_type == "user_message"] == ["I like tea"]
    read = await got(client.conversations.retrieve(one.id))
    assert len(read.in_context_message_ids) == 5 and read.last_message_at is not None
    runs = await every(client.runs.list(agent_id=agent.id, conversation_id=one.id))
    assert [run.status for run in runs] == ["completed"] and runs[0].conversation_id == one.id


async def test_a_conversation_speaks_with_its_own_model_until_that_is_changed(client: Any, model: WireModel) -> None:
    agent = await new(client, OPENAI)
    conversation = await got(client.conversations.create(agent_id=agent.id, model=ANTHROPIC))
    model.will("one", "two", "three")
    await say(client, conversation.id, "hello", "whole")
    await got(client.conversations.update(conversation.id, model=OPENAI))
    await say(client, conversation.id, "hello again", "steps")
    await got(client.agents.messages.create(agent.id, input="and you?"))
    assert [asked["model"] for asked in model.asked] == [
        handle.partition("/")[2] for handle in (ANTHROPIC, OPENAI, OPENAI)
    ]
    assert "one" in shown(model.asked[1]), "what was said with the other model stays said"


async def test_a_fork_goes_its_own_way(client: Any, model: WireModel) -> None:
    agent = await new(client, OPENAI)
    origin = await got(client.conversations.create(agent_id=agent.id, extra_body=OWN_HUMAN))
    model.will("first answer")
    await say(client, origin.id, "first question", "whole")
    fork = await got(client.conversations.fork(origin.id))
    again = await got(client.conversations.fork(fork.id))
    assert len({*origin.isolated_block_ids, *fork.isolated_block_ids, *again.isolated_block_ids}) == 3
    model.will([("memory_insert", {"label": "human", "new_string": "In the fork"})], "done", "here", "there")
    await say(client, fork.id, "only in the fork", "steps")
    assert "first question" in shown(model.asked[0])
    await say(client, origin.id, "and in the origin?", "whole")
    await say(client, again.id, "and in the other?", "whole")
    for asked in model.asked[2:]:
        assert "In the fork" not in shown(asked) and "only in the fork" not in shown(asked)
    await got(client.conversations.delete(fork.id))
    with pytest.raises(NotFoundError):
        await say(client, fork.id, "gone?", "steps")


async def test_iterating_a_list_returns_each_message_once_in_both_orders(client: Any, model: WireModel) -> None:
    agent = await new(client, OPENAI)
    thread = (await got(client.conversations.create(agent_id=agent.id))).id
    model.will(*(f"answer {number}" for number in range(3)))
    for number in range(3):
        await say(client, thread, f"question {number}", "whole")
    listed = client.conversations.messages.list
    newest = [(one.id, one.message_type) for one in (await got(listed(thread))).items]
    assert len(newest) == 7 and newest[-1][1] == "system_message"
    for limit in (1, 3, 100):
        for order, wanted in (("desc", newest), ("asc", newest[::-1])):
            found = [(one.id, one.message_type) for one in await every(listed(thread, limit=limit, order=order))]
            assert found == wanted, (limit, order)
        assert [(one.id, one.message_type) for one in await every(listed(thread, limit=limit))] == newest

    async def page(**cursors: str) -> list[str]:
        return [one.id for one in (await got(listed(thread, **cursors))).items]

    ids = [message_id for message_id, _ in newest]
    assert await page(order="desc", before=ids[2]) == ids[3:], "Letta Code 0.25.9: older"
    assert await page(order="desc", after=ids[2]) == ids[3:], "Letta Code 0.32.18: older"
    assert await page(order="asc", after=ids[2]) == ids[1::-1], "Letta Code: newer"
    for after, before in ((ids[1], ids[4]), (ids[4], ids[1])):
        assert await page(order="desc", after=after, before=before) == ids[2:4]
    older = [one.id for one in await every(listed(thread, limit=2, order="desc", before=ids[2]))]
    assert set(older) == set(ids[3:]) and len(older) > len(ids[3:]), "the SDK goes on from the newest: it repeats some"
    assert [one.id for one in await every(listed(thread, limit=2, order="desc", after=ids[2]))] == ids[3:]


@pytest.fixture(scope="module")
def slow() -> Iterator[SlowModel]:
    with slow_model() as made:
        yield made


@pytest.fixture(scope="module")
def waiting_server(tmp_path_factory: pytest.TempPathFactory, slow: SlowModel) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("slow"), **wires(slow.url)) as running:
        yield running


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_busy_conversation_says_whose_turn_it_is_and_holds_no_other(
    waiting_server: Served, slow: SlowModel, handle: str, streaming: bool
) -> None:
    async with sdk_client("async", waiting_server.url) as made:
        client: AsyncLetta = made
        agent = await new(client, handle)
        one, other = [await client.conversations.create(agent_id=agent.id) for _ in range(2)]
        way = "steps" if streaming else "whole"
        slow.hold(0)
        try:
            first = asyncio.ensure_future(say(client, one.id, "first", way))
            await asyncio.to_thread(wait_for, "the model is asked", lambda: slow.asking == 1, WAIT_S)
            with pytest.raises(ConflictError) as refused:
                await say(client, one.id, "second", way)
            (run,) = await every(client.runs.list(agent_id=agent.id, active=True))
            assert refused.value.body["run_id"] == run.id  # type: ignore[index]
            assert "is currently being processed" in refused.value.body["detail"]  # type: ignore[index]
            second = asyncio.ensure_future(say(client, other.id, "elsewhere", way))
            await asyncio.to_thread(wait_for, "both are asked", lambda: slow.asking == 2, WAIT_S)
            queued = asyncio.ensure_future(client.agents.messages.create(agent.id, input="plain"))
        finally:
            slow.free()
        assert await first == await second == [SAID]
        assert (await queued).stop_reason.stop_reason == "end_turn"
        assert await say(client, one.id, "third", way) == [SAID]
