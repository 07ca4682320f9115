"""Tool rules as users of letta-client see them: over the wires of OpenAI and Anthropic, streamed and not, with the
tools that every server has."""

import json
from typing import Any

import httpx
import pytest
from letta_client import UnprocessableEntityError

from tests.acceptance.sdk import every, got
from tests.acceptance.served import Served
from tests.acceptance.wire_model import HANDLES, OPENAI, WireModel

WAYS = ("whole", "steps", "tokens")
INSERT, SEARCH, KEEP = "memory_insert", "conversation_search", "archival_memory_insert"
TOOLS = sorted((INSERT, SEARCH, KEEP))


async def new(client: Any, handle: str, *rules: dict[str, Any], agent_type: str = "letta_v1_agent", **more: Any) -> Any:
    tools = TOOLS + (["send_message"] if agent_type.startswith("memgpt") else [])
    return await got(
        client.agents.create(
            name="Ruled", model=handle, agent_type=agent_type, include_base_tools=False, tools=tools,
            tool_rules=list(rules), memory_blocks=[{"label": "human", "value": "Name: Ada"}], **more,
        )
    )  # fmt: skip


async def say(client: Any, agent: Any, way: str, **more: Any) -> tuple[list[Any], str]:
    """The messages of a turn and why it stopped."""
    if way == "whole":
        answer = await got(client.agents.messages.create(agent.id, input="go", **more))
        return answer.messages, answer.stop_reason.stop_reason
    tokens = way == "tokens"
    events = await every(
        await got(client.agents.messages.create(agent.id, input="go", streaming=True, stream_tokens=tokens, **more))
    )
    stop = next(one.stop_reason for one in events if one.message_type == "stop_reason")
    return [one for one in events if one.message_type not in ("stop_reason", "usage_statistics", "ping")], stop


def returns(messages: list[Any]) -> list[tuple[str, str]]:
    return [(one.name, one.status) for one in messages if one.message_type == "tool_return_message"]


def insert(words: str) -> tuple[str, dict[str, Any]]:
    return INSERT, {"label": "human", "new_string": words}


async def human(client: Any, agent: Any) -> str:
    return (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_the_first_tool_is_forced_and_has_the_arguments_of_its_rule(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    rule = {"type": "run_first", "tool_name": INSERT, "args": {"new_string": "by rule"}}
    agent = await new(client, handle, rule)
    assert agent.tool_rules[0].type == "run_first" and agent.tool_rules[0].args == {"new_string": "by rule"}
    model.will([insert("by model")], "done")
    messages, stop = await say(client, agent, way)
    assert stop == "end_turn" and returns(messages) == [(INSERT, "success")]
    assert "by rule" in await human(client, agent) and "by model" not in await human(client, agent)
    assert model.offers() == [([INSERT], INSERT), (TOOLS, "auto")]
    call = next(one for one in messages if one.message_type == "tool_call_message")
    assert json.loads(call.tool_call.arguments)["new_string"] == "by rule", "the client sees what was run"
    shown = json.dumps(model.asked[1]["messages"])
    assert "by rule" in shown and "by model" not in shown, "and so does the model"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_child_follows_its_parent_and_a_forbidden_call_is_told_and_not_run(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    rules = (
        {"type": "constrain_child_tools", "tool_name": SEARCH, "children": [KEEP]},
        {"type": "max_count_per_step", "tool_name": KEEP, "max_count_limit": 1},
    )
    agent = await new(client, handle, *rules)
    search, keep = (SEARCH, {"query": "x"}), (KEEP, {"content": "kept"})
    model.will([search], [insert("forbidden")], [keep], "done")
    messages, stop = await say(client, agent, way)
    assert stop == "end_turn"
    assert returns(messages) == [(SEARCH, "success"), (INSERT, "error"), (KEEP, "success")]
    assert "forbidden" not in await human(client, agent)
    assert model.offers() == [(TOOLS, "auto"), ([KEEP], KEEP), ([KEEP], KEEP), (sorted((INSERT, SEARCH)), "auto")]
    told = next(one for one in messages if getattr(one, "status", None) == "error")
    assert told.tool_return.endswith(f"Allowed tools: {KEEP}.")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_turn_goes_on_until_what_it_requires_was_called(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    agent = await new(client, handle, {"type": "required_before_exit", "tool_name": INSERT})
    model.will("too early", [insert("required")], "done")
    messages, stop = await say(client, agent, way)
    assert stop == "end_turn" and "required" in await human(client, agent)
    assert model.offers() == [(TOOLS, "auto"), ([INSERT], INSERT), (TOOLS, "auto")]
    (reminder,) = [one for one in messages if one.message_type == "user_message"]
    assert INSERT in json.loads(reminder.content)["reason"]
    model.will(*["never"] * 9)
    assert (await say(client, agent, way, max_steps=3))[1] == "max_steps" and len(model.asked) == 3
    model.will([insert("again")], "done")
    assert (await say(client, agent, way))[1] == "end_turn", "the agent is well"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_terminal_tool_ends_the_turn(client: Any, model: WireModel, handle: str, way: str) -> None:
    agent = await new(client, handle, {"type": "exit_loop", "tool_name": INSERT})
    model.will([insert("last words")])
    messages, stop = await say(client, agent, way)
    assert stop == "tool_rule" and returns(messages) == [(INSERT, "success")] and len(model.asked) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_a_rule_that_does_not_fit_its_tool_stops_the_turn(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    agent = await new(client, handle, {"type": "run_first", "tool_name": INSERT, "args": {"zzz": 1}})
    model.will([insert("x")])
    messages, stop = await say(client, agent, way)
    assert stop == "invalid_tool_call" and returns(messages) == [(INSERT, "error")]
    assert "zzz" in messages[-1].tool_return and await human(client, agent) == "Name: Ada"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("handle", HANDLES)
async def test_parallel_calls_are_answered_each_under_the_rules(
    client: Any, model: WireModel, handle: str, way: str
) -> None:
    limit = {"type": "max_count_per_step", "tool_name": INSERT, "max_count_limit": 2}
    agent = await new(client, handle, limit, parallel_tool_calls=True)
    model.will([insert("one"), insert("two"), insert("three")], "done")
    messages, stop = await say(client, agent, way)
    results = next(one for one in messages if one.message_type == "tool_return_message")
    assert stop == "end_turn" and [one.status for one in results.tool_returns] == ["success", "success", "error"]
    assert [word in await human(client, agent) for word in ("one", "two", "three")] == [True, True, False]


@pytest.mark.parametrize("handle", HANDLES)
async def test_rules_hold_for_an_agent_that_speaks_by_tool(client: Any, model: WireModel, handle: str) -> None:
    rules = (
        {"type": "run_first", "tool_name": SEARCH, "args": {"query": "by rule"}},
        {
            "type": "conditional",
            "tool_name": KEEP,
            "child_output_mapping": {"nothing": INSERT},
            "default_child": SEARCH,
        },
        {"type": "required_before_exit", "tool_name": KEEP},
    )
    agent = await new(client, handle, *rules, agent_type="memgpt_v2_agent")
    spoken = ("send_message", {"message": "hello"})
    keep = (KEEP, {"content": "kept"})
    model.will([(SEARCH, {"query": "mine"})], [spoken], [keep], [(SEARCH, {"query": "y"})], [spoken])
    messages, stop = await say(client, agent, "whole")
    assert stop == "end_turn" and returns(messages) == [(SEARCH, "success"), (KEEP, "success"), (SEARCH, "success")]
    all_of_them = sorted([*TOOLS, "send_message"])
    assert model.offers() == [
        ([SEARCH], SEARCH), (all_of_them, "required"), ([KEEP], KEEP), ([SEARCH], SEARCH), (all_of_them, "required")
    ]  # fmt: skip
    assert "by rule" in json.dumps(model.asked[1]["messages"])


async def test_rules_that_cannot_be_are_refused_with_their_field(client: Any) -> None:
    for rule, told in (
        ({"type": "constrain_child_tools", "tool_name": SEARCH}, "children"),
        ({"type": "max_count_per_step", "tool_name": SEARCH}, "max_count_limit"),
        (
            {"type": "constrain_child_tools", "tool_name": SEARCH, "children": [KEEP],
             "child_arg_nodes": [{"name": INSERT, "args": {}}]},
            INSERT,
        ),
    ):  # fmt: skip
        with pytest.raises(UnprocessableEntityError, match=told):
            await new(client, OPENAI, rule)


async def test_the_payload_a_message_would_send_shows_what_must_run_first(client: Any, server: Served) -> None:
    agent = await new(client, OPENAI, {"type": "run_first", "tool_name": SEARCH})
    path = f"{server.url}/v1/agents/{agent.id}/messages/preview-raw-payload"
    async with httpx.AsyncClient(trust_env=False) as http:
        payload = (await http.post(path, json={"input": "go"})).json()
    assert [tool["function"]["name"] for tool in payload["tools"]] == [SEARCH]
    assert payload["tool_choice"]["function"]["name"] == SEARCH
