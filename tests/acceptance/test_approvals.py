"""Approvals and client tools through letta-client: over both wires, streamed and not."""

from typing import Any

import pytest
from letta_client import BadRequestError, ConflictError

from tests.acceptance.sdk import every, got
from tests.acceptance.wire_model import HANDLES, WireModel

INSERT = "memory_insert"
RULE = {"type": "requires_approval", "tool_name": INSERT}
LOOK = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
}
WAYS = ("whole", "steps", "tokens")


async def new(client: Any, handle: str) -> Any:
    blocks = [{"label": "human", "value": "Ada"}]
    return await got(
        client.agents.create(
            model=handle, include_base_tools=False, tools=[INSERT], tool_rules=[RULE], memory_blocks=blocks
        )
    )


async def send(client: Any, agent: Any, way: str, **body: Any) -> tuple[list[Any], str]:
    """The messages of a turn and why it stopped."""
    if way == "whole":
        answer = await got(client.agents.messages.create(agent.id, **body))
        return answer.messages, answer.stop_reason.stop_reason
    stream = client.agents.messages.create(agent.id, streaming=True, stream_tokens=way == "tokens", **body)
    events = await every(await got(stream))
    stop = next(one.stop_reason for one in events if one.message_type == "stop_reason")
    return [one for one in events if one.message_type not in ("stop_reason", "usage_statistics", "ping")], stop


def ruled(call_id: str, approve: bool, **more: Any) -> list[dict[str, Any]]:
    approval = {"type": "approval", "tool_call_id": call_id, "approve": approve, **more}
    return [{"type": "approval", "approvals": [approval]}]


async def human(client: Any, agent: Any) -> str:
    return (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_call_waits_and_is_approved_or_denied(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle)
    model.will([(INSERT, {"label": "human", "new_string": "tea"})])
    asked, stop = await send(client, agent, way, input="go")
    assert stop == "requires_approval" and {one.message_type for one in asked} == {"approval_request_message"}
    request = (await got(client.agents.retrieve(agent.id, include=["agent.pending_approval"]))).pending_approval
    assert request.id == asked[0].id == asked[0].otid and await human(client, agent) == "Ada"
    call_id = request.tool_call.tool_call_id
    with pytest.raises(ConflictError) as refused:
        await send(client, agent, way, input="and?")
    assert refused.value.body["detail"]["code"] == "PENDING_APPROVAL"
    with pytest.raises(BadRequestError):
        await send(client, agent, "whole", messages=ruled("call_bogus", True))
    model.will("done")
    told, stop = await send(client, agent, way, messages=ruled(call_id, True))
    assert stop == "end_turn" and told[0].message_type == "tool_return_message" and told[0].status == "success"
    assert "tea" in await human(client, agent)
    model.will([(INSERT, {"label": "human", "new_string": "gin"})], "as you like")
    asked, _ = await send(client, agent, way, input="again")
    told, _ = await send(client, agent, way, messages=ruled(asked[0].tool_call.tool_call_id, False, reason="no gin"))
    assert told[0].status == "error" and "no gin" in told[0].tool_return
    assert "gin" not in await human(client, agent)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_client_runs_its_own_tool(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle)
    model.will([("look", {"q": "z"})], "seen")
    asked, stop = await send(client, agent, way, input="go", client_tools=[LOOK])
    assert stop == "requires_approval" and asked[0].tool_call.name == "look"
    result = {
        "type": "tool",
        "tool_call_id": asked[0].tool_call.tool_call_id,
        "tool_return": "there",
        "status": "success",
    }
    told, stop = await send(client, agent, way, messages=[{"type": "approval", "approvals": [result]}])
    assert stop == "end_turn" and told[0].tool_return == "there" and "there" in str(model.asked[-1])
