"""Background runs as users of letta-client have them: over the wires of OpenAI and Anthropic, across kill -9."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served, served, wait_for
from tests.acceptance.wire_model import HANDLES, WireModel

WAIT_S = 60.0
INSERT = ("memory_insert", {"label": "human", "new_string": "Likes tea"})


async def new(client: Any, handle: str) -> Any:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    return await got(client.agents.create(name="Behind", model=handle, memory_blocks=blocks))


def dumped(frames: list[Any]) -> list[dict[str, Any]]:
    return [frame.model_dump(mode="json") for frame in frames]


@pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_stream_is_taken_up_again_after_any_frame(
    client: Any, model: WireModel, handle: str, tokens: bool
) -> None:
    agent = await new(client, handle)
    model.will([INSERT], "Noted.")
    told = await every(
        client.agents.messages.stream(agent.id, input="I like tea", background=True, stream_tokens=tokens)
    )
    assert [one.message_type for one in told[-2:]] == ["stop_reason", "usage_statistics"]
    assert "".join(one.content for one in told if one.message_type == "assistant_message") == "Noted."
    numbers = [one.seq_id for one in told[:-2]]
    assert numbers == list(range(1, len(told) - 1))
    run_id = told[0].run_id
    for after in (0, 1, numbers[-1]):
        resumed = await every(client.runs.messages.stream(run_id, starting_after=after))
        assert dumped(resumed) == dumped(told[after:])
    found = await every(client.conversations.messages.stream("default", agent_id=agent.id, run_id=run_id))
    assert dumped(found) == dumped(told)


@pytest.mark.parametrize("handle", HANDLES)
async def test_an_async_send_is_answered_behind_its_sender(
    client: Any, server: Served, model: WireModel, handle: str
) -> None:
    agent = await new(client, handle)
    model.will("Later is now.")
    run = await got(client.agents.messages.create_async(agent.id, input="when you can"))
    assert run.status == "created" and run.background
    wait_for("the run ends", lambda: _status(server, run.id) == "completed", WAIT_S)
    listed = await every(client.runs.messages.list(run.id))
    assert [one.content for one in listed] == ["when you can", "Later is now."]
    resumed = await every(client.runs.messages.stream(run.id, include_pings=False))
    assert [one.message_type for one in resumed] == ["assistant_message", "stop_reason", "usage_statistics"]


def _status(server: Served, run_id: str) -> str:
    with httpx.Client(trust_env=False, timeout=WAIT_S) as http:
        return http.get(f"{server.url}/v1/runs/{run_id}").json()["status"]


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        async with sdk_client("async", server.url) as client:
            agent = await client.agents.create(name="Tough", model="kelpie/demo")
            slow = '!script [{"text": "first", "wait_s": 1.5}]'
            runs = [await client.agents.messages.create_async(agent.id, input=text) for text in (slow, "second")]
        server.kill()
        server.start()
        wait_for("both runs end", lambda: {_status(server, run.id) for run in runs} == {"completed"}, WAIT_S)
        async with sdk_client("async", server.url) as client:
            listed = await every(client.agents.messages.list(agent.id, order="asc"))
            said = [one.content for one in listed if one.message_type == "user_message"]
            assert said == [slow, "second"]
            told = await every(client.runs.messages.stream(runs[0].id))
            assert [one.content for one in told if one.message_type == "assistant_message"] == ["first"]


@pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
async def test_whoever_sends_again_and_waits_gets_the_same_answer(server: Served, tokens: bool) -> None:
    slow = '!script [{"text": "only once", "wait_s": 0.7}]'
    messages = [{"role": "user", "content": slow, "otid": "6f6a2f2e-0000-4000-8000-0000000000aa"}]
    async with sdk_client("async", server.url) as client:
        agent = await client.agents.create(name="Asked", model="kelpie/demo")

        async def streamed() -> list[Any]:
            asked = {"messages": messages, "stream_tokens": tokens, "include_pings": False}
            return dumped(await every(client.agents.messages.stream(agent.id, **asked)))

        async def whole() -> Any:
            return await client.agents.messages.create(agent.id, messages=messages)

        first, second, third = await asyncio.gather(streamed(), streamed(), whole())
        assert "".join(one.content for one in third.messages) == "only once"
        ids = {one["id"] for one in (*first, *second) if one["message_type"] == "assistant_message"}
        assert ids == {one.id for one in third.messages}
        again = await whole()
        assert (again.messages, again.stop_reason) == (third.messages, third.stop_reason)
        listed = await every(client.agents.messages.list(agent.id))
        assert [one.message_type for one in listed].count("user_message") == 1
