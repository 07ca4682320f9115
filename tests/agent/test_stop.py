"""Whether a turn goes on: the decision, case by case."""

import pytest

from kelpie.agent.prompt.agent_types import TYPES
from kelpie.agent.tool_calls.tool_rules import Made
from kelpie.agent.tool_calls.turn_end import CallSummary, Ruled, decide, ruled
from kelpie.core.agents.agent import AgentType, ToolRule
from kelpie.core.conversations.runs import StopReason

DIRECT = TYPES[AgentType.letta_v1_agent]
BY_TOOL = TYPES[AgentType.memgpt_agent]
EXIT = (ToolRule("exit_loop", "send_message"),)
GO_ON = (ToolRule("continue_loop", "core_memory_append"),)


def call(name="t", *, heartbeat=False, refused=False):
    return CallSummary(name, heartbeat, refused)


@pytest.mark.parametrize(
    ("spec", "rules", "calls", "finish", "left", "stop"),
    [
        (DIRECT, (), [], "stop", 5, StopReason.end_turn),
        (DIRECT, (), [], "length", 5, StopReason.max_tokens_exceeded),
        (DIRECT, (), [call()], "tool_calls", 5, None),
        (DIRECT, (), [call(refused=True)], "tool_calls", 5, None),
        (DIRECT, (), [call()], "tool_calls", 0, StopReason.max_steps),
        (DIRECT, EXIT, [call("send_message")], "tool_calls", 5, StopReason.tool_rule),
        (BY_TOOL, EXIT, [], "stop", 5, StopReason.end_turn),
        (BY_TOOL, EXIT, [call("send_message")], "tool_calls", 5, StopReason.end_turn),
        (BY_TOOL, EXIT, [call("send_message", heartbeat=True)], "tool_calls", 5, StopReason.tool_rule),
        (BY_TOOL, EXIT, [call()], "tool_calls", 5, StopReason.end_turn),
        (BY_TOOL, EXIT, [call(heartbeat=True)], "tool_calls", 5, None),
        (BY_TOOL, EXIT, [call(refused=True)], "tool_calls", 5, None),
        (BY_TOOL, GO_ON, [call("core_memory_append")], "tool_calls", 5, None),
        (BY_TOOL, GO_ON, [call("core_memory_append")], "tool_calls", 0, StopReason.max_steps),
        (BY_TOOL, EXIT, [call("send_message", refused=True)], "tool_calls", 5, None),
    ],
)
def test_decision(spec, rules, calls, finish, left, stop):
    assert decide(spec, rules, calls, finish, left).stop == stop


def test_a_type_with_heartbeats_is_told_why_it_goes_on():
    asked = decide(BY_TOOL, (), [call(heartbeat=True)], "tool_calls", 5)
    ruled = decide(BY_TOOL, GO_ON, [call("core_memory_append")], "tool_calls", 5)
    assert asked.nudge and ruled.nudge and asked.nudge != ruled.nudge
    assert decide(DIRECT, (), [call()], "tool_calls", 5).nudge is None


def turned_away():
    return CallSummary("t", True, True, bad_prefill=True)


@pytest.mark.parametrize(
    ("spec", "rules", "calls", "finish", "left", "asked", "stop", "told"),
    [
        (DIRECT, (), [], "stop", 5, Ruled(owed=("a", "b")), None, "a and b"),
        (DIRECT, (), [], "stop", 0, Ruled(owed=("a",)), StopReason.max_steps, None),
        (DIRECT, (), [], "length", 5, Ruled(owed=("a",)), StopReason.max_tokens_exceeded, None),
        (DIRECT, (), [], "stop", 5, Ruled(next=("a",)), None, "call a now"),
        (DIRECT, (), [], "stop", 0, Ruled(next=("a",)), StopReason.max_steps, None),
        (DIRECT, (), [call()], "tool_calls", 5, Ruled(owed=("a",), next=("b",)), None, None),
        (DIRECT, EXIT, [call("send_message")], "tool_calls", 5, Ruled(owed=("a",)), None, "call a before"),
        (DIRECT, EXIT, [call("send_message")], "tool_calls", 5, Ruled(next=("a",)), StopReason.tool_rule, None),
        (DIRECT, (), [call(), turned_away()], "tool_calls", 5, Ruled(owed=("a",)), StopReason.invalid_tool_call, None),
        (BY_TOOL, EXIT, [call("send_message")], "tool_calls", 5, Ruled(owed=("a",)), None, "call a before"),
        (BY_TOOL, EXIT, [call("send_message")], "tool_calls", 0, Ruled(owed=("a",)), StopReason.max_steps, None),
        (BY_TOOL, EXIT, [call("send_message")], "tool_calls", 5, Ruled(next=("a",)), StopReason.end_turn, None),
        (BY_TOOL, (), [call()], "tool_calls", 5, Ruled(next=("a",)), None, "next step"),
        (BY_TOOL, (), [call()], "tool_calls", 5, Ruled(owed=("a",)), None, "call a before"),
        (BY_TOOL, (), [call(heartbeat=True)], "tool_calls", 5, Ruled(owed=("a",)), None, "you asked"),
        (BY_TOOL, (), [turned_away()], "tool_calls", 5, Ruled(), StopReason.invalid_tool_call, None),
    ],
)
def test_decision_under_tool_rules(spec, rules, calls, finish, left, asked, stop, told):
    decision = decide(spec, rules, calls, finish, left, asked)
    assert decision.stop == stop
    assert decision.nudge is None if told is None else told in decision.nudge


def test_the_rules_ask_for_what_is_owed_and_for_what_must_follow():
    rules = (
        ToolRule("required_before_exit", "c"),
        ToolRule("constrain_child_tools", "a", {"children": ["b"]}),
    )
    assert ruled(DIRECT, rules, ["a", "b", "c"], [Made("a", "")]) == Ruled(("c",), ("b",))
    assert ruled(DIRECT, rules, ["a", "b", "c"], [Made("c", "")]) == Ruled()
    assert ruled(DIRECT, rules, ["a"], [Made("a", "")]) == Ruled()
