"""Phrases of errors and tool results that published clients match (Letta Code, lettabot), and their status codes.

The words around a phrase are ours and may change; the phrases may not.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.server.rig import Puppet, called, make_agent, said

Scene = Callable[[httpx.AsyncClient, Puppet], Awaitable[tuple[int, str, dict[str, str]]]]

INSERT, CALL = "memory_insert", "call_tea"
RULE = {"type": "requires_approval", "tool_name": INSERT}
DENIAL = {"type": "approval", "tool_call_id": CALL, "approve": False, "reason": "no tea today"}


@dataclass(frozen=True)
class Phrase:
    """What a client matches in the text of one answer; `{name}` stands for a value of the scene."""

    name: str
    scene: Scene
    status: int
    fragments: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


async def _agent(client: httpx.AsyncClient, **fields: Any) -> str:
    return (await make_agent(client, memory_blocks=[{"label": "human", "value": "Ada"}], **fields))["id"]


async def _conversation(client: httpx.AsyncClient, agent: str) -> str:
    return (await client.post("/v1/conversations/", params={"agent_id": agent}, json={})).json()["id"]


async def _waiting(client: httpx.AsyncClient, puppet: Puppet) -> str:
    """An agent with a call that waits for approval."""
    agent = await _agent(client, tools=[INSERT], tool_rules=[RULE])
    puppet.script.append(called(INSERT, json.dumps({"label": "human", "new_string": "tea"}), CALL))
    answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": "note tea"})
    assert answer.json()["stop_reason"]["stop_reason"] == "requires_approval"
    return agent


def _approvals(*rulings: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"type": "approval", "approvals": list(rulings)}]}


def _detail(answer: httpx.Response) -> str:
    return str(answer.json()["detail"])


def _streamed(answer: httpx.Response) -> tuple[int, str]:
    """The status and text of an error, which a stream tells before its first frame or in an error frame."""
    if answer.status_code != 200:
        return answer.status_code, _detail(answer)
    frames = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
    [error] = [frame for frame in frames if frame["message_type"] == "error_message"]
    return 400, error["message"]


async def unknown_tools(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    answer = await client.post("/v1/agents/", json={"name": "a", "tools": ["web_surf", INSERT, "no_such"]})
    return answer.status_code, _detail(answer), {}


async def busy_conversation(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    path = f"/v1/conversations/{await _conversation(client, await _agent(client))}/messages"
    go_on = asyncio.Event()
    puppet.script.append(go_on)
    first = asyncio.ensure_future(client.post(path, json={"input": "first", "streaming": False}))
    async with asyncio.timeout(10):
        await puppet.waiting.wait()
    answer = await client.post(path, json={"input": "second"})
    go_on.set()
    assert (await first).status_code == 200
    return answer.status_code, _detail(answer), {"run": answer.json()["run_id"]}


async def pending_approval(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _waiting(client, puppet)
    answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": "and?"})
    detail = answer.json()["detail"]
    assert detail["code"] == "PENDING_APPROVAL" and detail["pending_request_id"].startswith("message-")
    return answer.status_code, detail["message"], {}


async def pending_approval_streamed(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _waiting(client, puppet)
    answer = await client.post(f"/v1/agents/{agent}/messages/stream", json={"input": "and?"})
    return answer.status_code, answer.json()["detail"]["message"], {}


async def nothing_awaits(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    answer = await client.post(f"/v1/agents/{await _agent(client)}/messages", json=_approvals(DENIAL))
    return answer.status_code, _detail(answer), {}


async def nothing_awaits_streamed(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    answer = await client.post(f"/v1/agents/{await _agent(client)}/messages/stream", json=_approvals(DENIAL))
    return *_streamed(answer), {}


async def other_calls(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _waiting(client, puppet)
    body = _approvals({**DENIAL, "tool_call_id": "call_bogus"})
    answer = await client.post(f"/v1/agents/{agent}/messages", json=body)
    return answer.status_code, _detail(answer), {}


async def other_calls_streamed(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _waiting(client, puppet)
    body = _approvals({**DENIAL, "tool_call_id": "call_bogus"})
    return *_streamed(await client.post(f"/v1/agents/{agent}/messages/stream", json=body)), {}


async def useless_summary(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    answer = await client.post(f"/v1/agents/{await _agent(client)}/summarize", json={})
    return answer.status_code, _detail(answer), {}


async def useless_compaction(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    conversation = await _conversation(client, await _agent(client))
    answer = await client.post(f"/v1/conversations/{conversation}/compact", json={})
    return answer.status_code, _detail(answer), {}


async def nothing_to_follow(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    conversation = await _conversation(client, await _agent(client))
    answer = await client.post(f"/v1/conversations/{conversation}/stream", json={})
    return answer.status_code, _detail(answer), {}


async def nothing_to_cancel_of_agent(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _agent(client)
    assert (await client.post(f"/v1/agents/{agent}/messages", json={"input": "hi"})).status_code == 200
    answer = await client.post(f"/v1/agents/{agent}/messages/cancel", json={})
    return answer.status_code, _detail(answer), {"agent": agent}


async def nothing_to_cancel_of_default(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _agent(client)
    assert (await client.post(f"/v1/agents/{agent}/messages", json={"input": "hi"})).status_code == 200
    answer = await client.post("/v1/conversations/default/cancel", params={"agent_id": agent})
    return answer.status_code, _detail(answer), {"agent": agent}


async def nothing_to_cancel(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    conversation = await _conversation(client, await _agent(client))
    answer = await client.post(f"/v1/conversations/{conversation}/cancel")
    return answer.status_code, _detail(answer), {"conversation": conversation}


async def denied_call(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    agent = await _waiting(client, puppet)
    answer = await client.post(f"/v1/agents/{agent}/messages", json=_approvals(DENIAL))
    told = next(one for one in answer.json()["messages"] if one["message_type"] == "tool_return_message")
    assert told["status"] == "error"
    return answer.status_code, told["tool_return"], {}


async def long_result(client: httpx.AsyncClient, puppet: Puppet) -> tuple[int, str, dict[str, str]]:
    """The same call of two agents alike, before and after the tool may return only 40 characters."""
    [tool] = (await client.get("/v1/tools/", params={"name": "conversation_search"})).json()
    agent = await _agent(client, tool_ids=[tool["id"]])
    call = called("conversation_search", json.dumps({"query": "tea"}))
    path = f"/v1/agents/{agent}/messages"
    puppet.script += [call, said("whole")]
    whole = (await client.post(path, json={"input": "look for tea"})).json()["messages"]
    [before] = [one["tool_return"] for one in whole if one["message_type"] == "tool_return_message"]
    assert (await client.patch(f"/v1/tools/{tool['id']}", json={"return_char_limit": 40})).status_code == 200
    other = await _agent(client, tool_ids=[tool["id"]])
    puppet.script += [call, said("cut")]
    answer = await client.post(f"/v1/agents/{other}/messages", json={"input": "look for tea"})
    [after] = [one["tool_return"] for one in answer.json()["messages"] if one["message_type"] == "tool_return_message"]
    return answer.status_code, after, {"size": str(len(before)), "start": before[:20]}


_APPROVAL = ("CONFLICT", "waiting for approval on a tool call", "approve or deny the pending request before continuing")
PHRASES = (
    Phrase("S1", unknown_tools, 400, ("Tools not found by name", "web_surf", "no_such")),
    Phrase("S2", busy_conversation, 409, ("CONFLICT", "(run_id={run})", "is currently being processed")),
    Phrase("S3", pending_approval, 409, _APPROVAL),
    Phrase("S3-streamed", pending_approval_streamed, 409, _APPROVAL),
    Phrase("S4", nothing_awaits, 400, ("No tool call is currently awaiting approval",)),
    Phrase("S4-streamed", nothing_awaits_streamed, 400, ("No tool call is currently awaiting approval",)),
    Phrase("S5", other_calls, 400, ("Invalid tool call IDs", CALL, "call_bogus")),
    Phrase("S5-streamed", other_calls_streamed, 400, ("Invalid tool call IDs", CALL, "call_bogus")),
    Phrase("S6-summarize", useless_summary, 400, ("Summarization failed to reduce the number of messages",)),
    Phrase("S6-compact", useless_compaction, 400, ("Summarization failed to reduce the number of messages",)),
    Phrase("S7-resume", nothing_to_follow, 400, ("No active runs found for this conversation.",)),
    Phrase("S7-agent", nothing_to_cancel_of_agent, 409, ("No active runs to cancel for agent {agent}",)),
    Phrase("S7-default", nothing_to_cancel_of_default, 409, ("No active runs to cancel for agent {agent}",)),
    Phrase("S7-conversation", nothing_to_cancel, 409, ("No active runs to cancel for conversation {conversation}",)),
    Phrase("S8", denied_call, 200, ("request to call tool denied", "no tea today")),
    Phrase("S9", long_result, 200, ("{start}", "function output was truncated", "{size}", "40")),
)


@pytest.mark.parametrize("phrase", PHRASES, ids=str)
async def test_a_client_finds_the_phrase_that_it_matches(
    client: httpx.AsyncClient, puppet: Puppet, phrase: Phrase
) -> None:
    status, text, values = await phrase.scene(client, puppet)
    assert status == phrase.status, text
    for fragment in phrase.fragments:
        assert fragment.format(**values) in text
