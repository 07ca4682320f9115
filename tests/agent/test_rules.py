"""The solver of tool rules: each kind by example, and all of them together against a reference that asks one question
at a time in the plainest way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kelpie.agent.tool_calls.tool_rules import (
    Made,
    allowed_tools,
    call_first,
    call_one_of,
    made_in,
    one_at_a_time,
    owed,
    refusal,
    wants_end,
)
from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import Message, Role, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId

TOOLS = ("a", "b", "c", "end")
EXITS = frozenset({"end"})
OF_TURN = (MessageId("message-00000000-0000-4000-8000-000000000001"), AgentId("agent-x"))


def rule(kind, tool="a", **options):
    return ToolRule(kind, tool, options)


def after(*calls):
    """Calls that were made; one with a result is written name=result."""
    return [Made(name, text or "") for name, _, text in (call.partition("=") for call in calls)]


def allowed(rules, *calls):
    return set(allowed_tools(rules, TOOLS, after(*calls), EXITS).allowed)


def test_without_rules_everything_goes_and_nothing_must():
    found = allowed_tools((), TOOLS, after("a", "b"))
    assert found.allowed == TOOLS and not found.forced and not found.prefilled
    assert owed((), TOOLS, ()) == () and not one_at_a_time(())


def test_a_turn_begins_with_what_must_run_first_and_is_then_free():
    rules = (rule("run_first", "b", args={"x": 1}), rule("run_first", "ghost"))
    found = allowed_tools(rules, TOOLS, ())
    assert found.allowed == ("b",) and found.forced and found.prefilled == {"b": {"x": 1}}
    assert allowed_tools(rules, TOOLS, after("b")) == allowed_tools((), TOOLS, after("b"))
    assert allowed_tools((rule("run_first", "ghost"),), TOOLS, ()).allowed == TOOLS


def test_children_follow_their_parent_with_the_arguments_the_rule_gives():
    nodes = [{"name": "b", "args": {"s": "x"}}, {"name": "c", "args": None}]
    rules = (rule("constrain_child_tools", "a", children=["b", "c"], child_arg_nodes=nodes),)
    found = allowed_tools(rules, TOOLS, after("a"))
    assert found.allowed == ("b", "c") and found.forced and found.prefilled == {"b": {"s": "x"}}
    assert not allowed_tools(rules, TOOLS, after("a", "b")).forced and allowed(rules, "a", "b") == set(TOOLS)
    assert not allowed_tools(rules, TOOLS, ()).prefilled


def test_two_rules_for_one_parent_leave_what_both_allow():
    rules = (
        rule("constrain_child_tools", children=["b", "c"], child_arg_nodes=[{"name": "c", "args": {"x": 1, "y": 1}}]),
        rule("constrain_child_tools", children=["c", "end"], child_arg_nodes=[{"name": "c", "args": {"y": 2}}]),
    )
    found = allowed_tools(rules, TOOLS, after("a"))
    assert found.allowed == ("c",) and found.prefilled == {"c": {"x": 1, "y": 2}}


def test_children_that_the_agent_does_not_have_constrain_nothing():
    for void in (
        rule("constrain_child_tools", children=["ghost"]),
        rule("constrain_child_tools", children=[]),
        rule("conditional", child_output_mapping={"x": "ghost"}),
        rule("conditional", child_output_mapping={}, default_child="ghost"),
    ):
        found = allowed_tools((void,), TOOLS, after("a=x"))
        assert found.allowed == TOOLS and not found.forced


def test_a_child_of_a_last_tool_runs_right_after_it_and_never_else():
    rules = (rule("parent_last_tool", "a", children=["b"]),)
    assert allowed(rules) == {"a", "c", "end"} == allowed(rules, "a", "c") == allowed(rules, "a", "b")
    assert allowed(rules, "a") == set(TOOLS) and not allowed_tools(rules, TOOLS, after("a")).forced


@pytest.mark.parametrize(
    ("key", "output", "matches"),
    [
        ("go", "go", True), ("go", " go\n", True), ("go", "Go", False), ("4", "4", True), ("4", "4.0", True),
        ("4", "5", False), ("true", "True", True), ("True", "true", True), ("1", "True", False), ("0", "false", False),
        ("null", "None", True), ("", "", True), ("nan", "nan", True), ("4", "four", False),
    ],
)  # fmt: skip
def test_the_result_decides_what_comes_next(key, output, matches):
    rules = (rule("conditional", child_output_mapping={key: "b"}, default_child="c"),)
    found = allowed_tools(rules, TOOLS, [Made("a", output)])
    assert found.allowed == (("b",) if matches else ("c",)) and found.forced


def test_a_result_without_a_match_leaves_the_model_free_or_ends_the_turn():
    free = rule("conditional", child_output_mapping={"x": "b"})
    assert allowed((free,), "a=y") == set(TOOLS)
    strict = rule("conditional", child_output_mapping={"x": "b"}, require_output_mapping=True)
    found = allowed_tools((strict,), TOOLS, after("a=y"), EXITS)
    assert found.allowed == ("end",) and not found.forced
    assert allowed_tools((strict,), TOOLS, after("a=x"), EXITS).allowed == ("b",)


def test_while_the_result_is_not_known_nothing_may_follow():
    rules = (rule("conditional", child_output_mapping={"x": "b"}),)
    found = allowed_tools(rules, TOOLS, [Made("a")])
    assert found.allowed == () and found.waits_for == "a" and "'a'" in refusal(found, "b")
    assert allowed_tools(rules, TOOLS, [Made("c")]).allowed == TOOLS


def test_a_limit_counts_the_calls_of_the_turn():
    rules = (rule("max_count_per_step", "a", max_count_limit=2), rule("max_count_per_step", "b", max_count_limit=0))
    assert allowed(rules) == {"a", "c", "end"} == allowed(rules, "a", "c")
    assert allowed(rules, "a", "c", "a") == {"c", "end"}


def test_when_the_rules_leave_nothing_the_turn_can_still_end():
    rules = (rule("constrain_child_tools", children=["b"]), rule("max_count_per_step", "b", max_count_limit=1))
    found = allowed_tools(rules, TOOLS, after("b", "a"), EXITS)
    assert found.allowed == ("end",) and not found.forced
    bare = allowed_tools(rules, TOOLS, after("b", "a"))
    assert bare.allowed == () and not bare.forced and "answer" in refusal(bare, "b")


def test_what_is_owed_before_the_end():
    rules = (
        rule("required_before_exit", "a"),
        rule("required_before_exit", "c"),
        rule("required_before_exit", "ghost"),
    )
    assert owed(rules, TOOLS, ()) == ("a", "c") and owed(rules, TOOLS, after("c")) == ("a",)
    assert owed(rules, TOOLS, after("c", "a")) == ()
    assert owed((*rules, rule("max_count_per_step", "a", max_count_limit=0)), TOOLS, ()) == ("c",)


def test_a_model_that_tries_to_end_must_call_what_it_owes():
    rules = (rule("required_before_exit", "a"), rule("parent_last_tool", "b", children=["c"]))
    found = allowed_tools(rules, TOOLS, after("b"), EXITS, ending=True)
    assert found.allowed == ("a",) and found.forced
    assert allowed_tools(rules, TOOLS, after("a"), EXITS, ending=True).allowed == ("a", "b", "end")
    later = (rule("required_before_exit", "c"), *rules[1:])
    assert not allowed_tools(later, TOOLS, after("a"), EXITS, ending=True).forced, "it cannot be called yet"
    assert allowed_tools(later, TOOLS, after("b"), EXITS, ending=True).allowed == ("c",)


def test_a_turn_wants_to_end_by_an_answer_or_by_a_tool_that_ends_it():
    def reply(*names, step="step-x"):
        calls = tuple(ToolCall(f"call-{name}", name, "{}") for name in names)
        return Message(*OF_TURN, Role.assistant, 0, tool_calls=calls, step_id=step)

    said = Message(*OF_TURN, Role.user, 0)
    assert not wants_end([], EXITS) and not wants_end([said, reply(step=None)], EXITS)
    assert wants_end([reply("a"), reply(), said], EXITS) and wants_end([reply("a", "end")], EXITS)
    assert not wants_end([reply(), reply("a")], EXITS)


def test_only_rules_about_order_take_parallel_calls_away():
    free = ("exit_loop", "continue_loop", "required_before_exit", "requires_approval", "max_count_per_step")
    assert not one_at_a_time([rule(kind) for kind in free])
    for kind in ("run_first", "constrain_child_tools", "parent_last_tool", "conditional"):
        assert one_at_a_time([rule("exit_loop"), rule(kind)])


def test_the_words_name_the_tools():
    assert "'c'" in refusal(allowed_tools((rule("run_first", "b"),), TOOLS, ()), "c")
    assert refusal(allowed_tools((rule("run_first", "b"),), TOOLS, ()), "c").endswith("Allowed tools: b.")
    assert "call a before" in call_first(["a"]) and "call a, b and c before" in call_first(["a", "b", "c"])
    assert "call a now" in call_one_of(["a"]) and "one of a, b" in call_one_of(["a", "b"])


def test_calls_are_read_from_the_rows_of_a_turn_and_those_untried_do_not_count():
    def row(*results):
        return Message(*OF_TURN, Role.tool, 0, tool_returns=results)

    tried, failed = ToolReturn("1", "a", True, "yes"), ToolReturn("2", "b", False, "no")
    untried = ToolReturn("3", "c", False, "not allowed", untried=True)
    assert made_in([row(tried, untried), row(failed)]) == (Made("a", "yes"), Made("b", "no"))


# --- against the reference ---------------------------------------------------------------------------------------

NAMES = st.sampled_from(("a", "b", "c", "end", "ghost"))
OUTPUTS = st.sampled_from(("x", "y", "4"))
RULES = st.lists(
    st.one_of(
        st.builds(lambda t, v: rule("run_first", t, args=v), NAMES, st.sampled_from((None, {"p": 1}))),
        st.builds(
            lambda t, c, n: rule("constrain_child_tools", t, children=c, child_arg_nodes=n),
            NAMES,
            st.lists(NAMES, max_size=3),
            st.lists(st.builds(lambda n: {"name": n, "args": {"p": 2}}, NAMES), max_size=1),
        ),
        st.builds(lambda t, c: rule("parent_last_tool", t, children=c), NAMES, st.lists(NAMES, max_size=2)),
        st.builds(
            lambda t, m, d, o: rule("conditional", t, child_output_mapping=m, default_child=d,
                require_output_mapping=o),
            NAMES,
            st.dictionaries(OUTPUTS, NAMES, max_size=2),
            st.none() | NAMES,
            st.booleans(),
        ),
        st.builds(lambda t, n: rule("max_count_per_step", t, max_count_limit=n), NAMES, st.integers(0, 2)),
        st.builds(rule, st.sampled_from(("required_before_exit", "continue_loop", "requires_approval")), NAMES),
    ),
    max_size=5,
)  # fmt: skip
CALLS = st.lists(st.builds(Made, st.sampled_from(TOOLS), OUTPUTS), max_size=5)


def may(rules, made, tool):
    """Whether no rule speaks against the tool, by asking each."""
    last = made[-1] if made else None
    for r in rules:
        o = r.options
        count = len([m for m in made if m.name == tool])
        if r.type == "max_count_per_step" and r.tool_name == tool and count >= o["max_count_limit"]:
            return False
        if r.type == "parent_last_tool" and tool in o["children"] and (last is None or last.name != r.tool_name):
            return False
        if last is not None and r.tool_name == last.name and tool not in children(r, last, default=[tool]):
            return False
    return True


def children(r, last, default):
    """What may follow the last call for one rule about it; the default when it says nothing."""
    if r.type == "constrain_child_tools":
        found = r.options["children"]
    elif r.type == "conditional":
        child = r.options["child_output_mapping"].get(last.text) or r.options["default_child"]
        if child is None:
            return [] if r.options["require_output_mapping"] else default
        found = [child]
    else:
        return default
    return found if set(found) & set(TOOLS) else default


def limited(rules, made, tool):
    """Whether its number of calls or a missing parent speak against the tool: those are never lifted."""
    return not may([r for r in rules if r.type in ("max_count_per_step", "parent_last_tool")], made, tool)


@settings(max_examples=1000, deadline=None)
@given(RULES, CALLS)
def test_the_solver_says_what_the_reference_says(rules, made):
    found = allowed_tools(rules, TOOLS, made, EXITS)
    counted = [r for r in rules if r.type == "max_count_per_step"]
    first = [t for t in TOOLS if any(r.type == "run_first" and r.tool_name == t for r in rules)]
    first = [t for t in first if may(counted, made, t)]
    if not made and first:
        assert list(found.allowed) == first and found.forced
    elif free := [t for t in TOOLS if may(rules, made, t)]:
        assert list(found.allowed) == free
        bound = made and any(
            r.tool_name == made[-1].name and children(r, made[-1], default=None) is not None for r in rules
        )
        assert found.forced == bool(bound)
    else:
        assert list(found.allowed) == [t for t in EXITS if not limited(rules, made, t)] and not found.forced


@settings(max_examples=300, deadline=None)
@given(RULES, CALLS)
def test_what_always_holds(rules, made):
    found = allowed_tools(rules, TOOLS, made, EXITS)
    assert found == allowed_tools(rules, TOOLS, made, EXITS)
    assert set(found.allowed) <= set(TOOLS) and len(set(found.allowed)) == len(found.allowed)
    assert set(found.prefilled) <= set(found.allowed)
    assert found.allowed or not found.forced, "nobody is forced to call nothing"
    assert found.waits_for is None, "every result is known"
    required = {r.tool_name for r in rules if r.type == "required_before_exit"}
    assert set(owed(rules, TOOLS, made)) <= required & set(TOOLS) - {m.name for m in made}


@settings(max_examples=300, deadline=None)
@given(RULES, CALLS)
def test_calls_of_one_reply_get_what_they_would_get_one_by_one_unless_a_result_decides(rules, made):
    """With results unknown the allowed_tools is the same, or says that it waits."""
    unknown = [Made(m.name) for m in made]
    found, known = allowed_tools(rules, TOOLS, unknown, EXITS), allowed_tools(rules, TOOLS, made, EXITS)
    assert found == known or (found.allowed == () and found.waits_for == made[-1].name)
