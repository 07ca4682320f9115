"""Cancelling as users of letta-client do it: the request to the model is broken off, the client gets its end with
usage and [DONE], and the agent answers the next message; over the wires of OpenAI and Anthropic."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from letta_client import ConflictError

from tests.acceptance.sdk import every, got
from tests.acceptance.served import Served, wait_for
from tests.acceptance.slow_model import SlowModel, slow_model
from tests.acceptance.wire_model import HANDLES, OPENAI

WAYS = ("whole", "steps", "tokens")
WAIT_S = 60.0


@pytest.fixture(scope="module")
def model() -> Iterator[SlowModel]:
    with slow_model() as made:
        yield made


async def new(client: Any, handle: str = OPENAI) -> str:
    blocks = [{"label": "human", "value": "Name: Ada"}]
    return (await got(client.agents.create(name="Slow", model=handle, memory_blocks=blocks))).id


class Sent:
    """A send that goes on in a thread of its own, with its raw frames or its whole answer."""

    def __init__(self, url: str, agent_id: str, way: str, *, background: bool = False) -> None:
        self.frames: list[str] = []
        self.answer: dict[str, Any] = {}
        self._path = f"{url}/v1/agents/{agent_id}/messages{'' if way == 'whole' else '/stream'}"
        self._body = {"input": "a long story", "stream_tokens": way == "tokens", "background": background}
        self._thread = threading.Thread(target=self._send, args=(way,), daemon=True)
        self._thread.start()

    def _send(self, way: str) -> None:
        with httpx.Client(trust_env=False, timeout=60) as http:
            if way == "whole":
                self.answer = http.post(self._path, json={"input": "a long story"}).raise_for_status().json()
                return
            with http.stream("POST", self._path, json=self._body) as response:
                self.frames += [line.removeprefix("data: ") for line in response.iter_lines() if line]

    def ended(self) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
        """Why it stopped, what it used, and its messages."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the send did not end"
        if self.answer:
            return self.answer["stop_reason"]["stop_reason"], self.answer["usage"], self.answer["messages"]
        assert self.frames[-1] == "[DONE]"
        frames = [json.loads(frame) for frame in self.frames[:-1]]
        stop, usage = frames[-2:]
        assert (stop["message_type"], usage["message_type"]) == ("stop_reason", "usage_statistics")
        return stop["stop_reason"], usage, [f for f in frames[:-2] if f["message_type"] != "ping"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_the_model_is_hung_up_on_and_everything_ends_in_order(
    client: Any, server: Served, model: SlowModel, handle: str, way: str
) -> None:
    agent_id = await new(client, handle)
    model.hold(pieces=2)
    sent = Sent(server.url, agent_id, way)
    await asyncio.to_thread(wait_for, "the model is asked", lambda: model.asking == 1, WAIT_S)
    told = await got(client.agents.messages.cancel(agent_id))
    [(run_id, word)] = told.items()
    assert word == "cancelled"
    await asyncio.to_thread(wait_for, "the model sees that nobody listens", lambda: model.hung_up == 1, WAIT_S)
    stop, usage, messages = sent.ended()
    assert stop == "cancelled" and usage["step_count"] == 0
    assert way == "tokens" or messages == []
    run = await got(client.runs.retrieve(run_id))
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled") and run.completed_at is not None
    kept = await every(client.agents.messages.list(agent_id))
    assert [one.message_type for one in kept] == ["system_message"], "of a first step that never was nothing stays"
    model.free()
    answer = await got(client.agents.messages.create(agent_id, input="and now?"))
    assert answer.messages[-1].content == "told" and answer.stop_reason.stop_reason == "end_turn"


@pytest.mark.parametrize("handle", HANDLES)
async def test_a_background_stream_ends_in_order_and_is_read_again_as_it_was(
    client: Any, server: Served, model: SlowModel, handle: str
) -> None:
    agent_id = await new(client, handle)
    model.hold(pieces=2)
    sent = Sent(server.url, agent_id, "tokens", background=True)
    await asyncio.to_thread(wait_for, "the model is asked", lambda: model.asking == 1, WAIT_S)
    waiting = await got(client.agents.messages.create_async(agent_id, input="later"))
    assert waiting.status == "created"
    told = await got(client.agents.messages.cancel(agent_id))
    assert told == dict.fromkeys(told, "cancelled") and waiting.id in told and len(told) == 2
    await asyncio.to_thread(wait_for, "the model sees that nobody listens", lambda: model.hung_up == 1, WAIT_S)
    assert sent.ended()[0] == "cancelled"
    for run_id in told:
        assert (await got(client.runs.retrieve(run_id))).status == "cancelled"
        again = await every(await got(client.runs.messages.stream(run_id, starting_after=0)))
        ends = [one for one in again if one.message_type in ("stop_reason", "usage_statistics")]
        assert [one.message_type for one in ends] == ["stop_reason", "usage_statistics"]
        assert ends[0].stop_reason == "cancelled"
    model.free()
    answer = await got(client.agents.messages.create(agent_id, input="and now?"))
    assert answer.messages[-1].content == "told"
    kept = await every(client.agents.messages.list(agent_id))
    assert [one.message_type for one in kept] == ["system_message", "user_message", "assistant_message"]


async def _under_way(client: Any, agent_id: str) -> Any:
    """The one run of the agent; the model may be asked while it is still being written down."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await every(client.runs.list(agent_id=agent_id, active=True))
            if found:
                [run] = found
                return run
            await asyncio.sleep(0.05)  # between two looks


async def test_by_run_by_conversation_and_what_is_not_there(client: Any, server: Served, model: SlowModel) -> None:
    agent_id = await new(client)
    with pytest.raises(ConflictError):
        await got(client.agents.messages.cancel(agent_id))
    with pytest.raises(ConflictError):
        await got(client.conversations.cancel("default", agent_id=agent_id))
    for how in ("run", "conversation"):
        model.hold(pieces=1)
        sent = Sent(server.url, agent_id, "steps")
        await asyncio.to_thread(wait_for, "the model is asked", lambda: model.asking == 1, WAIT_S)
        run = await _under_way(client, agent_id)
        unknown = "run-00000000-0000-4000-8000-000000000001"
        if how == "run":
            told = await got(client.agents.messages.cancel(agent_id, run_ids=[run.id, unknown]))
            assert told == {run.id: "cancelled", unknown: "failed"}
        else:
            assert await got(client.conversations.cancel("default", agent_id=agent_id)) == {run.id: "cancelled"}
        assert sent.ended()[0] == "cancelled"
        model.free()
    with pytest.raises(ConflictError, match=f"No active runs to cancel for agent {agent_id}"):
        await got(client.agents.messages.cancel(agent_id))


async def test_a_pause_as_clients_see_it(client: Any, server: Served, model: SlowModel) -> None:
    made = await got(
        client.agents.create(
            name="Tired", model="kelpie/demo", agent_type="memgpt_v2_agent", tools=["pause_heartbeats"],
            memory_blocks=[{"label": "human", "value": ""}],
        )
    )  # fmt: skip
    assert made.paused_until is None
    calls = [
        {"name": "pause_heartbeats", "arguments": {"minutes": 7}},
        {"name": "send_message", "arguments": {"message": "x"}},
    ]
    script = "!script " + json.dumps([{"calls": calls}, {"text": "never"}])
    answer = await got(client.agents.messages.create(made.id, input=script))
    assert answer.stop_reason.stop_reason == "end_turn"
    assert answer.stop_reason.kelpie_stop_reason == "pause_heartbeats"
    events = await every(
        await got(client.agents.messages.create(made.id, input=script, streaming=True, stream_tokens=True))
    )
    [stop] = [one for one in events if one.message_type == "stop_reason"]
    assert (stop.stop_reason, stop.kelpie_stop_reason) == ("end_turn", "pause_heartbeats")
    rows = await every(client.agents.messages.list(made.id, use_assistant_message=False))
    returned = [r.tool_return for m in rows if m.message_type == "tool_return_message" for r in m.tool_returns]
    assert any("7 minutes" in text for text in returned) and any("Interrupted by pause" in text for text in returned)
    [run] = (await every(client.runs.list(agent_id=made.id, limit=1)))[:1]
    assert run.kelpie_stop_reason == "pause_heartbeats" and run.status == "completed"
    assert (await got(client.agents.retrieve(made.id))).paused_until is not None
