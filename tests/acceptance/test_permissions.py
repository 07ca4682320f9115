"""Permissions, limits and the record of calls through letta-client: over both wires, streamed and not."""

from typing import Any

import pytest
from letta_client import BadRequestError

from tests.acceptance.sdk import every, got, sdk_client
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, WireModel

INSERT, SEARCH = "memory_insert", "conversation_search"
WRITE = (INSERT, {"label": "human", "new_string": "tea"})
LOOK = (SEARCH, {"query": "tea"})
WAYS = ("whole", "tokens")


async def new(client: Any, handle: str, **extra: Any) -> Any:
    blocks = [{"label": "human", "value": "Ada"}]
    body = {"model": handle, "include_base_tools": False, "tools": [INSERT, SEARCH], "memory_blocks": blocks}
    return await got(client.agents.create(**body, extra_body=extra))


async def send(client: Any, agent: Any, way: str) -> tuple[list[Any], Any]:
    """The results of a turn's calls, and why it stopped."""
    if way == "whole":
        answer = await got(client.agents.messages.create(agent.id, input="go"))
        messages, stop = answer.messages, answer.stop_reason
    else:
        stream = client.agents.messages.create(agent.id, streaming=True, stream_tokens=way == "tokens", input="go")
        messages = await every(await got(stream))
        stop = next(one for one in messages if one.message_type == "stop_reason")
    return [one for one in messages if one.message_type == "tool_return_message"], stop


async def read(client: Any, path: str) -> Any:
    return await got(client.get(path, cast_to=object))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_forbidden_call_is_told_recorded_and_changes_nothing(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    agent = await new(client, handle, kelpie_permissions={"deny": ["memory_*"]})
    assert agent.kelpie_permissions == {"allow": None, "deny": ["memory_*"]}
    model.will([WRITE], [LOOK], "well")
    told, stop = await send(client, agent, way)
    assert stop.stop_reason == "end_turn"
    assert [one.status for one in told] == ["error", "success"] and "may not use it" in told[0].tool_return
    assert model.offers()[0][0] == [SEARCH]
    assert (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value == "Ada"
    calls = await read(client, f"/v1/agents/{agent.id}/tool-calls")
    assert [(call["tool"], call["outcome"]) for call in calls] == [(SEARCH, "success"), (INSERT, "refused")]
    await got(client.agents.update(agent.id, extra_body={"kelpie_permissions": None}))
    model.will([WRITE], "well")
    told, _ = await send(client, agent, way)
    assert told[0].status == "success"
    assert "tea" in (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_limits_are_held_and_shown(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle, kelpie_limits={"tool_calls_per_hour": 1})
    model.will([LOOK], [LOOK], "well")
    told, stop = await send(client, agent, way)
    assert [one.status for one in told] == ["success", "error"] and "used up" in told[1].tool_return
    assert stop.stop_reason == "end_turn"
    limits = await read(client, f"/v1/agents/{agent.id}/limits")
    assert limits["used"]["tool_calls"] == 1 and limits["used"]["tokens"] > 0
    await got(client.agents.update(agent.id, extra_body={"kelpie_limits": {"tokens_per_hour": 1}}))
    told, stop = await send(client, agent, way)
    assert (told, stop.stop_reason, stop.kelpie_stop_reason) == ([], "insufficient_credits", "limit")
    assert "kelpie_limits" in stop.kelpie_budget["message"]
    await got(client.agents.update(agent.id, extra_body={"kelpie_limits": None}))
    model.will("well")
    assert (await send(client, agent, way))[1].stop_reason == "end_turn"


async def test_a_policy_holds_for_all_agents_and_over_a_restart(model: WireModel, server: Served) -> None:
    policy = {"permissions": {"deny": ["capability:memory"]}}
    async with sdk_client("async", server.url) as client:
        agent = await new(client, HANDLES[0], kelpie_permissions={"allow": ["*"]})
        assert (await got(client.put("/v1/kelpie/policy", body=policy, cast_to=object)))["version"] >= 1
        model.will([WRITE], "well")
        told, _ = await send(client, agent, "whole")
        assert "policy of this agent's organization" in told[0].tool_return
    server.restart()
    async with sdk_client("async", server.url) as client:
        model.will([WRITE], "well")
        told, _ = await send(client, agent, "whole")
        assert "policy of this agent's organization" in told[0].tool_return
        await got(client.put("/v1/kelpie/policy", body={}, cast_to=object))
        model.will([WRITE], "well")
        assert (await send(client, agent, "whole"))[0][0].status == "success"


async def test_what_is_no_pattern_is_refused(client: Any) -> None:
    with pytest.raises(BadRequestError, match=r"kelpie_permissions\.deny"):
        await new(client, HANDLES[0], kelpie_permissions={"deny": ["capability:flight"]})
