"""Requests as chat programs send them, with everything that they add: Open WebUI, LibreChat and LangChain.

The Vercel AI SDK is run itself: tests/clients/test_openai_clients.py.
"""

import json
from typing import Any

import httpx
import pytest

from tests.server.rig import Puppet, called, make_agent, said
from tests.server.test_openai_chat import seen, threads

CHAT = "/openai/v1/chat/completions"


@pytest.fixture
async def agent(client: httpx.AsyncClient) -> str:
    return (await make_agent(client, name="bea"))["id"]


def chunks(answer: httpx.Response) -> list[Any]:
    """The chunks of a stream, as programs without an SDK read them: line by line."""
    assert answer.status_code == 200, answer.text
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(found: list[Any]) -> str:
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in found if one["choices"])


def open_webui(history: list[Any], **more: Any) -> dict[str, Any]:
    """Open WebUI: streams, asks for usage, puts the date into its system prompt, and trims what it sends back."""
    system = {"role": "system", "content": f"You are helpful. The time is {len(history)}:00."}
    return {
        "stream": True,
        "model": "bea",
        "messages": [system, *history],
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "max_tokens": 512,
        **more,
    }


async def test_open_webui(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    models = (await client.get("/openai/v1/models")).json()
    assert [(one["id"], one["name"]) for one in models["data"]] == [("bea", "bea")]
    puppet.script += [said("Hello\n\n there "), said("Fine"), said("Title")]
    history: list[Any] = [{"role": "user", "content": "hi"}]
    first = chunks(await client.post(CHAT, json=open_webui(history)))
    assert first[-1]["usage"]["total_tokens"] == 12 and first[-1]["choices"] == []
    history += [{"role": "assistant", "content": text_of(first).strip()}, {"role": "user", "content": "how are you?"}]
    assert text_of(chunks(await client.post(CHAT, json=open_webui(history)))) == "Fine"
    assert len(await threads(client, agent)) == 1
    task = open_webui([{"role": "user", "content": "### Task:\nGenerate a concise title."}], stream=False)
    del task["stream_options"]
    title = await client.post(CHAT, json=task)
    assert title.json()["choices"][0]["message"]["content"] == "Title"
    assert len(await threads(client, agent)) == 2, "a task of Open WebUI is a conversation of its own"


async def test_open_webui_stops_an_answer(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    """The part that its user saw is sent back; the agent goes on from that, not from what it would have said."""
    puppet.script += [said("One Two Three"), said("Good")]
    history: list[Any] = [{"role": "user", "content": "count"}]
    await client.post(CHAT, json=open_webui(history))
    history += [{"role": "assistant", "content": "One"}, {"role": "user", "content": "stop"}]
    await client.post(CHAT, json=open_webui(history))
    assert seen(puppet)[-1] == [("user", "count"), ("assistant", "One"), ("user", "stop")]


async def test_librechat(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    """LibreChat: names its user by an id, and sends content as parts, with names of the speakers."""
    shared = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "stop": None}
    puppet.script += [said("Hello"), said("Fine"), said("Hello"), said("Other")]
    for user in ("65f0c0ffee", "65f0decade"):
        history: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        body = {"model": "bea", "user": user, "stream": True, "messages": history, **shared}
        history.append(
            {"role": "assistant", "content": text_of(chunks(await client.post(CHAT, json=body))), "name": "bea"}
        )
        history.append({"role": "user", "content": [{"type": "text", "text": f"I am {user}"}]})
        await client.post(CHAT, json=body)
        assert [text for _, text in seen(puppet)[-1]] == ["hi", "Hello", f"I am {user}"]
    assert len(await threads(client, agent)) == 2
    keys = [one["identifier_key"] for one in (await client.get("/v1/identities/")).json()]
    assert sorted(keys) == ["65f0c0ffee", "65f0decade"]


async def test_langchain(client: httpx.AsyncClient, puppet: Puppet, agent: str) -> None:
    """LangChain's ChatOpenAI with tools: nulls for what it does not set, and content null beside calls."""
    tool = {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
    }
    shared = {"model": "bea", "n": None, "temperature": 0.0, "stream": False, "tools": [tool], "tool_choice": "auto"}
    puppet.script += [called("add", '{"a": 1}', "call_a"), said("It is 2")]
    history: list[Any] = [{"content": "Be exact.", "role": "system"}, {"content": "1 + 1?", "role": "user"}]
    first = (await client.post(CHAT, json={**shared, "messages": history})).json()["choices"][0]
    assert first["finish_reason"] == "tool_calls" and first["message"]["content"] is None
    call = first["message"]["tool_calls"][0]
    history.append({"content": None, "role": "assistant", "tool_calls": [{**call, "type": "function"}]})
    history.append({"content": "2", "role": "tool", "tool_call_id": call["id"]})
    second = (await client.post(CHAT, json={**shared, "messages": history})).json()["choices"][0]
    assert second["message"]["content"] == "It is 2" and len(await threads(client, agent)) == 1
    assert "Be exact." in puppet.asked[-1].system


@pytest.mark.parametrize("agent_type", ["memgpt_agent", "memgpt_v2_agent", "react_agent"])
async def test_agents_that_answer_with_a_tool(client: httpx.AsyncClient, puppet: Puppet, agent_type: str) -> None:
    """What they send with `send_message` is the answer, whole and streamed, and is known when it comes back."""
    agent = (await make_agent(client, name="old", agent_type=agent_type))["id"]
    answers = agent_type != "react_agent"
    for number in range(3):
        text = f"Answer {number}"
        puppet.script.append(
            called("send_message", json.dumps({"message": text, "thinking": "hm"}), f"call_{number}")
            if answers
            else said(text)
        )
    history: list[Any] = []
    for stream in (False, True, False):
        history.append({"role": "user", "content": "go on"})
        answer = await client.post(CHAT, json={"model": "old", "messages": history, "stream": stream})
        text = text_of(chunks(answer)) if stream else answer.json()["choices"][0]["message"]["content"]
        assert text.replace(" ", "").startswith("Answer")
        history.append({"role": "assistant", "content": text if answers or not stream else "Answer 1"})
    assert len(await threads(client, agent)) == 1
    assert sum(role == "user" for role, _ in seen(puppet)[-1]) >= 3
