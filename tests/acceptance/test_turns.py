"""One turn of every agent type, over both wires, as one answer and as a stream of steps or of tokens.

A turn notes something with a tool and answers. Whichever way it is asked for, the client gets the same messages with
the same ids, and they are what the history lists afterwards; a stream has its frames in the exact form and order.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import httpx
import pytest
from letta_client import Letta

from tests.acceptance.sdk import TIMEOUT_S
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, WireModel

PLAIN = "letta_v1_agent"
SPEAKING = ("memgpt_agent", "memgpt_v2_agent", "split_thread_agent")  # with a tool
THINKING = (*SPEAKING, "react_agent", "workflow_agent", "sleeptime_agent")  # in an argument of every call
TYPES = (PLAIN, *THINKING)
ANSWER = "It is noted now, word by word, and everybody who listens hears it while it is being said."
_TAIL = ("stop_reason", "usage_statistics")


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Letta]:
    with Letta(
        base_url=server.url, api_key="none", max_retries=0, timeout=TIMEOUT_S, _strict_response_validation=True
    ) as made:
        yield made


def new(client: Letta, agent_type: Any, handle: str) -> str:
    made = client.agents.create(
        agent_type=agent_type,
        model=handle,
        system="Answer." if agent_type == "split_thread_agent" else None,
        tools=["memory_insert"],
        memory_blocks=[{"label": "human", "value": "Name: Ada"}],
    )
    return made.id


def script(model: WireModel, agent_type: str, words: str) -> None:
    """The replies of one turn, as a model of this agent type would give them."""
    note: dict[str, Any] = {"label": "human", "new_string": words}
    if agent_type in THINKING:
        note = {"thinking": "I note it.", **note}
    if agent_type in THINKING and agent_type != "sleeptime_agent":
        note["request_heartbeat"] = True
    speak = [("send_message", {"thinking": "Now I say so.", "message": ANSWER})]
    model.will([("memory_insert", note)], speak if agent_type in SPEAKING else ANSWER)


def kinds(agent_type: str) -> list[str]:
    """The messages of the turn, each with its place."""
    thought = ["reasoning_message"] if agent_type in THINKING else []
    spoken = ["reasoning_message"] if agent_type in SPEAKING else []
    return [*thought, "tool_call_message", "tool_return_message", *spoken, "assistant_message"]


def listed(server: Served, agent_id: str, words: str) -> list[dict[str, Any]]:
    """What the history has of the turn that noted these words, without what the user said and what goes on its own."""
    found = httpx.get(f"{server.url}/v1/agents/{agent_id}/messages", params={"order": "asc"}, trust_env=False).json()
    start = next(i for i, one in enumerate(found) if one.get("content") == words)
    return [one for one in found[start + 1 :] if one["message_type"] != "user_message"]


def frames(server: Served, agent_id: str, words: str, **options: Any) -> list[dict[str, Any]]:
    """The stream of a send, frame by frame as it is on the wire; everything but its last frame is JSON."""
    path = f"{server.url}/v1/agents/{agent_id}/messages/stream"
    with httpx.stream(
        "POST", path, json={"input": words, "include_pings": False, **options}, trust_env=False, timeout=TIMEOUT_S
    ) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        raw = answer.read().decode()
    assert raw.endswith("\n\n")
    *found, last = raw.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    assert all(one.startswith("data: {") and "\n" not in one for one in found), "one unnamed line of JSON each"
    return [json.loads(one.removeprefix("data: ")) for one in found]


def ends_well(found: list[dict[str, Any]], steps: int = 2) -> list[dict[str, Any]]:
    """The messages of a stream, once its end was looked at."""
    *said, stop, usage = found
    assert (stop["message_type"], usage["message_type"]) == _TAIL and stop["stop_reason"] == "end_turn"
    assert (usage["step_count"], usage["total_tokens"]) == (steps, 12 * steps)
    assert not [one for one in said if one["message_type"] in _TAIL]
    return said


def place(message: dict[str, Any]) -> tuple[str, ...]:
    """What tells a message from all others, and how it is filed."""
    return tuple(str(message[key]) for key in ("message_type", "id", "otid", "step_id", "run_id", "date"))


def joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """One message from the frames that bring it."""
    [*_, last] = deltas
    match last["message_type"]:
        case "assistant_message":
            return {"content": "".join(one["content"] for one in deltas)}
        case "reasoning_message":
            return {"reasoning": "".join(one["reasoning"] for one in deltas), "source": last["source"]}
        case "tool_call_message":
            calls = [one["tool_call"] for one in deltas]
            assert [one["tool_calls"] for one in deltas] == calls
            assert {call["tool_call_id"] for call in calls} == {calls[0]["tool_call_id"]}
            assert [call["name"] for call in calls if "name" in call] == ["memory_insert"] and "name" in calls[0]
            arguments = "".join(call.get("arguments", "") for call in calls)
            return {"call": (calls[0]["tool_call_id"], json.loads(arguments))}
        case _:
            assert len(deltas) == 1, "only replies come in pieces"
            return {key: last[key] for key in ("tool_return", "status", "tool_call_id")}


def content(message: dict[str, Any]) -> dict[str, Any]:
    """The same of a message that is whole."""
    if message["message_type"] == "tool_call_message":
        call = message["tool_call"]
        return {"call": (call["tool_call_id"], json.loads(call["arguments"]))}
    wanted = {
        "assistant_message": ("content",),
        "reasoning_message": ("reasoning", "source"),
        "tool_return_message": ("tool_return", "status", "tool_call_id"),
    }[message["message_type"]]
    return {key: message[key] for key in wanted}


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("agent_type", TYPES)
def test_every_way_of_asking_brings_the_messages_that_the_history_has(
    client: Letta, server: Served, model: WireModel, agent_type: str, handle: str
) -> None:
    agent_id = new(client, agent_type, handle)

    script(model, agent_type, "first words")
    whole = client.agents.messages.create(agent_id, input="first words")
    kept = listed(server, agent_id, "first words")
    assert [one["message_type"] for one in kept] == kinds(agent_type)
    assert whole.stop_reason.stop_reason == "end_turn" and whole.usage.step_count == 2
    assert [place(json.loads(one.model_dump_json()))[:4] for one in whole.messages] == [place(one)[:4] for one in kept]
    assert kept[-1]["content"] == ANSWER

    script(model, agent_type, "second words")
    steps = ends_well(frames(server, agent_id, "second words"))
    assert steps == listed(server, agent_id, "second words"), "a step stream brings them as they are stored"

    script(model, agent_type, "third words")
    tokens = ends_well(frames(server, agent_id, "third words", stream_tokens=True))
    kept = listed(server, agent_id, "third words")
    pieces = [list(group) for _, group in groupby(tokens, place)]
    assert [place(group[0]) for group in pieces] == [place(one) for one in kept], "ids and otids are those of the list"
    assert [joined(group) for group in pieces] == [content(one) for one in kept]
    assert len(pieces[-1]) > 1, "the answer came in pieces"
    assert len({place(one)[1] for one in kept}) == 3, "each reply and each result is a message of its own"


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("agent_type", [PLAIN, "memgpt_agent"])
def test_the_sdk_reads_the_stream_to_its_end(
    client: Letta, server: Served, model: WireModel, agent_type: str, handle: str, tokens: bool
) -> None:
    agent_id = new(client, agent_type, handle)
    script(model, agent_type, "words")
    with client.agents.messages.create(
        agent_id, input="words", streaming=True, stream_tokens=tokens, include_pings=True
    ) as stream:
        found = [json.loads(event.model_dump_json()) for event in stream]
    assert found[0]["message_type"] == "ping", "which tells at once that the line is open"
    assert [one["message_type"] for one in found[-2:]] == list(_TAIL)
    said = [one for one in found[:-2] if one["message_type"] != "ping"]
    assert {one["otid"] for one in said} == {one["otid"] for one in listed(server, agent_id, "words")}
