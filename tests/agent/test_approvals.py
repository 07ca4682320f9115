"""Calls that wait for somebody's word: asked for, answered, refused, and never run without it or twice."""

import asyncio

import pytest

from kelpie.agent.events.previews import Preview
from kelpie.agent.prompt.agent_types import Thoughts
from kelpie.agent.turn.activation import Activation
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import AgentType, Include, NewAgent, ToolRule
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import (
    ApprovalDecision,
    Awaits,
    MessageQuery,
    NewMessage,
    Role,
    Text,
    ToolReturn,
)
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import InvalidInput, ModelError, ModelFault, PendingApproval
from kelpie.core.ids import MessageId, StepId
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.tools.tools import NewTool
from kelpie.llm.provider.interface import ToolCallDelta
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says

APPEND = "core_memory_append"
SOURCE = '''
def outside(x: str) -> str:
    """Does something outside.

    Args:
        x (str): anything
    """
    return x
'''
CLIENT = ClientTool("look", "Looks.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})


def append(content="tea", **more):
    return (APPEND, {"label": "human", "content": content, **more})


async def make(rig, *, rules=(APPEND,), **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Bob"),))
    fields.setdefault("tools", (APPEND,))
    fields["tool_rules"] = tuple(ToolRule("requires_approval", name) for name in rules)
    fields.setdefault("parallel_tool_calls", True)
    return (await rig.kelpie.api().agents.create(NewAgent(**fields))).agent


async def answer(rig, agent_id, *answers, messages=(), **options):
    said = tuple(NewMessage(Role.user, (Text(text),)) for text in messages)
    turn = await rig.kelpie.api().sending.send(agent_id, SendRequest(said, answers=answers, **options))
    return [event async for event in turn.events()]


async def value(rig, agent_id):
    return (await rig.kelpie.api().blocks.of_agent_by_label(agent_id, "human")).value


async def history(rig, agent_id):
    found = await rig.kelpie.api().histories.messages(agent_id, MessageQuery(limit=None))
    return [row for row in found if row.role is not Role.system]


async def pending(rig, agent_id):
    return (await rig.kelpie.api().agents.get(agent_id, Include(pending_approval=True))).pending_approval


def returned(events):
    return [result for row in rows(events) for result in row.tool_returns]


async def well_formed(rig, agent_id):
    """Every call has exactly one result, and the agent still answers."""
    found = await history(rig, agent_id)
    calls = [(row.step_id, call.id) for row in found for call in row.tool_calls]
    results = [(row.step_id, result.call_id) for row in found for result in row.tool_returns]
    assert sorted(calls) == sorted(results)
    rig.model.script = [says("still here")]
    assert rows(await rig.say(agent_id, "are you there"))[-1].said == "still here"


async def test_a_call_that_needs_approval_ends_the_turn_and_nothing_runs(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    events = await rig.say(agent.id, "go")
    (request,) = rows(events)
    assert request.role is Role.approval and request.tool_calls[0].awaits is Awaits.approval
    assert ended(events).stop_reason is StopReason.requires_approval
    (run,) = await rig.kelpie.api().runs.page(RunQuery())
    assert run.status is RunStatus.completed and run.stop_reason is StopReason.requires_approval
    assert await value(rig, agent.id) == "Bob" and (await pending(rig, agent.id)).id == request.id


async def test_an_approved_call_runs_once_and_the_turn_goes_on_in_a_new_run(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    (request,) = rows(await rig.say(agent.id, "go"))
    rig.model.script = [says("done")]
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    result, said = rows(events)
    assert result.tool_returns[0].ok and said.text == "done" and ended(events).step_count == 1
    assert result.step_id == request.step_id and result.run_id != request.run_id
    assert await value(rig, agent.id) == "Bob\ntea" and await pending(rig, agent.id) is None
    shown = [m.message.role for m in rig.model.requests[-1].messages]
    assert shown == [Role.user, Role.assistant, Role.tool]
    assert [row.role for row in await history(rig, agent.id)] == [
        Role.user,
        Role.approval,
        Role.approval,
        Role.tool,
        Role.assistant,
    ]
    await well_formed(rig, agent.id)


@pytest.mark.parametrize("of", ["the first run", "the last run"])
async def test_a_turn_that_waits_again_is_cancelled_by_the_id_of_its_last_run(rig, of):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    first = ended(await rig.say(agent.id, "go"))
    rig.model.script = [says("", append("coffee"))]
    last = ended(await answer(rig, agent.id, ApprovalDecision("call_0", True)))
    assert last.stop_reason is StopReason.requires_approval and last.run_id != first.run_id
    wanted = first.run_id if of == "the first run" else last.run_id
    told = await rig.kelpie.api().cancellations.of_agent(agent.id, [wanted])
    assert told == {wanted: "cancelled"}, "also where it is over already"
    assert (await pending(rig, agent.id) is None) == (of == "the last run")
    if of == "the last run":
        await well_formed(rig, agent.id)
    assert await value(rig, agent.id) == "Bob\ntea"


async def test_a_denied_call_does_not_run_and_the_model_is_told_why(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    events = await answer(rig, agent.id, ApprovalDecision("call_0", False, "not today"))
    (result,) = returned(events)
    assert not result.ok and "not today" in result.text and await value(rig, agent.id) == "Bob"
    assert "not today" in rig.model.requests[-1].messages[-1].message.tool_returns[0].text
    assert ended(events).stop_reason is StopReason.end_turn
    await well_formed(rig, agent.id)


async def test_a_call_runs_with_the_arguments_that_a_person_put_in_their_place(rig):
    agent = await make(rig)
    rig.model.script = [says("", append("tea"))]
    await rig.say(agent.id, "go")
    await answer(rig, agent.id, ApprovalDecision("call_0", True, arguments='{"label": "human", "content": "coffee"}'))
    assert await value(rig, agent.id) == "Bob\ncoffee"
    assert "coffee" in rig.model.requests[-1].messages[-1].message.tool_returns[0].text, "the model is told"
    await well_formed(rig, agent.id)


async def test_arguments_that_do_not_fit_are_refused_and_the_call_still_waits(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    with pytest.raises(InvalidInput, match="call_0"):
        ended_error(await answer(rig, agent.id, ApprovalDecision("call_0", True, arguments='{"label": 3}')))
    assert await pending(rig, agent.id) is not None
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert await value(rig, agent.id) == "Bob\ntea"


def ended_error(events):
    error = ended(events).error
    if error is not None:
        raise error


async def test_a_plain_message_is_refused_while_a_call_waits_and_leaves_no_trace(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    (request,) = rows(await rig.say(agent.id, "go"))
    with pytest.raises(PendingApproval) as refused:
        await rig.say(agent.id, "and?")
    assert refused.value.request_id == request.id
    await rig.kelpie.runtime.dispatcher.release(agent.id)
    with pytest.raises(PendingApproval):  # a cold agent knows it too
        await rig.say(agent.id, "and?")
    assert len(await rig.kelpie.api().runs.page(RunQuery())) == 1 and len(await history(rig, agent.id)) == 2


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((ApprovalDecision("call_9", True),), "call_9"),
        ((ApprovalDecision("call_0", True), ApprovalDecision("call_0", False)), "call_0"),
        ((ApprovalDecision("call_0", True),), "call_1"),
        ((ApprovalDecision("call_0", True), ApprovalDecision("call_1", True), ApprovalDecision("zzz", True)), "zzz"),
    ],
    ids=["unknown", "twice", "incomplete", "one too many"],
)
async def test_answers_that_do_not_fit_are_refused_by_name(rig, answers, told):
    agent = await make(rig)
    rig.model.script = [says("", append("tea"), append("coffee"))]
    await rig.say(agent.id, "go")
    with pytest.raises(InvalidInput, match=told):
        ended_error(await answer(rig, agent.id, *answers))
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True), ApprovalDecision("call_1", False))
    assert [result.ok for result in returned(events)] == [False, True] and await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


async def test_other_calls_of_the_reply_run_after_the_answer(rig):
    agent = await make(rig, tools=(APPEND, "conversation_search"))
    rig.model.script = [says("hm", append(), ("conversation_search", {"query": "x"}))]
    (request,) = rows(await rig.say(agent.id, "go"))
    assert [call.awaits for call in request.tool_calls] == [Awaits.approval, None]
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert [result.name for result in returned(events)] == [APPEND, "conversation_search"]
    await well_formed(rig, agent.id)


async def test_answers_may_come_one_by_one_when_they_say_so(rig):
    agent = await make(rig)
    rig.model.script = [says("", append("tea"), append("coffee"))]
    await rig.say(agent.id, "go")
    events = await answer(rig, agent.id, ApprovalDecision("call_1", True), partial=True)
    assert ended(events).stop_reason is StopReason.requires_approval and await value(rig, agent.id) == "Bob"
    with pytest.raises(InvalidInput, match="already has a different answer"):
        ended_error(await answer(rig, agent.id, ApprovalDecision("call_1", False), partial=True))
    await rig.kelpie.runtime.dispatcher.release(agent.id)
    events = await answer(rig, agent.id, ApprovalDecision("call_0", False))
    assert sorted((r.call_id, r.ok) for r in returned(events)) == [("call_0", False), ("call_1", True)]
    assert await value(rig, agent.id) == "Bob\ncoffee"
    await well_formed(rig, agent.id)


async def test_a_part_of_the_answers_that_comes_again_adds_nothing(rig):
    agent = await make(rig)
    rig.model.script = [says("", append("tea"), append("coffee"))]
    await rig.say(agent.id, "go")
    await answer(rig, agent.id, ApprovalDecision("call_1", True), partial=True)
    before = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    events = await answer(rig, agent.id, ApprovalDecision("call_1", True), partial=True)
    assert ended(events).stop_reason is StopReason.requires_approval
    assert await rig.kelpie.api().histories.messages(agent.id, MessageQuery()) == before
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert [result.ok for result in returned(events)] == [True, True]
    await well_formed(rig, agent.id)


async def test_the_same_answer_again_tells_the_same_and_runs_nothing(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    first = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    asked = len(rig.model.requests)
    again = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert [row.id for row in rows(again)] == [row.id for row in rows(first)]
    assert ended(again).stop_reason is StopReason.end_turn and ended(again).usage == ended(first).usage
    assert len(rig.model.requests) == asked and await value(rig, agent.id) == "Bob\ntea"
    with pytest.raises(InvalidInput, match="No tool call is currently awaiting approval"):
        ended_error(await answer(rig, agent.id, ApprovalDecision("call_0", False)))


async def test_the_same_answer_again_goes_on_with_a_turn_that_failed(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    rig.model.script = [ModelError(ModelFault.server, "down"), says("up again")]
    assert ended(await answer(rig, agent.id, ApprovalDecision("call_0", True))).stop_reason is StopReason.llm_api_error
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert rows(events)[-1].text == "up again" and await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


async def test_an_answer_to_the_whole_request_answers_every_call(rig):
    agent = await make(rig)
    rig.model.script = [says("", append("tea"), append("coffee"))]
    (request,) = rows(await rig.say(agent.id, "go"))
    await answer(rig, agent.id, ApprovalDecision(request.id, True))
    assert await value(rig, agent.id) == "Bob\ntea\ncoffee"
    assert rows(await answer(rig, agent.id, ApprovalDecision(request.id, True))), "and is known when it comes again"


async def test_what_is_said_with_the_answers_comes_after_the_results(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await answer(rig, agent.id, ApprovalDecision("call_0", True), messages=["and hurry"])
    shown = [m.message for m in rig.model.requests[-1].messages]
    assert [m.role for m in shown] == [Role.user, Role.assistant, Role.tool, Role.user]
    assert shown[-1].text == "and hurry"
    await well_formed(rig, agent.id)


async def test_a_client_runs_its_own_tool_which_stands_before_the_agents(rig):
    agent = await make(rig, rules=())
    own = ClientTool(APPEND, "mine", {"type": "object", "properties": {}})
    rig.model.script = [says("", append(), ("look", {"q": "z"}))]
    (request,) = rows(await rig.say(agent.id, "go", client_tools=(own, CLIENT)))
    offered = {tool.name: tool.description for tool in rig.model.requests[0].tools}
    assert offered["look"] == "Looks." and offered[APPEND] == "mine"
    assert [call.awaits for call in request.tool_calls] == [Awaits.client, Awaits.client]
    with pytest.raises(InvalidInput, match="type 'tool'"):
        ended_error(await answer(rig, agent.id, ApprovalDecision("call_0", True), ApprovalDecision("call_1", True)))
    results = (ToolReturn("call_0", "", True, "kept", ("o",)), ToolReturn("call_1", "", False, "fell"))
    events = await answer(rig, agent.id, *results)
    assert [(r.name, r.ok, r.text, r.stdout) for r in returned(events)] == [
        (APPEND, True, "kept", ("o",)),
        ("look", False, "fell", None),
    ]
    assert await value(rig, agent.id) == "Bob"
    assert "look" not in {tool.name for tool in rig.model.requests[-1].tools}, "offered for one send only"
    await well_formed(rig, agent.id)


@pytest.mark.parametrize("kind", [AgentType.memgpt_agent, AgentType.memgpt_v2_agent, AgentType.react_agent])
async def test_every_type_of_agent_waits_and_goes_on(rig, kind):
    agent = await make(rig, agent_type=kind)
    rig.model.script = [says("", append(request_heartbeat=True))]
    assert ended(await rig.say(agent.id, "go")).stop_reason is StopReason.requires_approval
    rig.model.script = [
        says("done") if kind is AgentType.react_agent else says("", ("send_message", {"message": "done"}))
    ]
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert ended(events).error is None and ended(events).stop_reason in (StopReason.end_turn, StopReason.tool_rule)
    assert await value(rig, agent.id) == "Bob\ntea" and "done" in [row.said for row in rows(events)]


async def test_a_denial_lets_a_type_with_heartbeats_answer(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent)
    rig.model.script = [says("", append(request_heartbeat=False))]
    await rig.say(agent.id, "go")
    rig.model.script = [says("", ("send_message", {"message": "as you like"}))]
    assert rows(await answer(rig, agent.id, ApprovalDecision("call_0", False)))[-2].said == "as you like"


async def test_a_call_with_wrong_arguments_bothers_nobody(rig):
    agent = await make(rig)
    rig.model.script = [says("", (APPEND, {"label": "human"})), says("oh")]
    events = await rig.say(agent.id, "go")
    assert ended(events).stop_reason is StopReason.end_turn and not returned(events)[0].ok


async def test_what_was_refused_at_the_time_is_not_run_by_an_answer_to_another_call(rig):
    agent = await make(rig)
    rig.model.script = [says("", append(), (APPEND, {"label": "human"}))]
    await rig.say(agent.id, "go")
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert sorted((r.call_id, r.ok) for r in returned(events)) == [("call_0", True), ("call_1", False)]


async def test_a_tool_that_is_gone_when_it_is_approved_does_not_run(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    tool = next(t for t in (await rig.kelpie.api().agents.get(agent.id)).tools if t.name == APPEND)
    await rig.kelpie.api().tools.detach(agent.id, tool.id)
    (result,) = returned(await answer(rig, agent.id, ApprovalDecision("call_0", True)))
    assert not result.ok and await value(rig, agent.id) == "Bob"
    await well_formed(rig, agent.id)


async def test_the_rules_go_by_the_whole_turn_across_its_runs(rig):
    agent = await make(rig, rules=())
    limits = (ToolRule("requires_approval", APPEND), ToolRule("max_count_per_step", APPEND, {"max_count_limit": 1}))
    await rig.kelpie.api().agents.update(agent.id, {"tool_rules": limits})
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert APPEND not in {tool.name for tool in rig.model.requests[-1].tools}


async def test_an_agent_that_clears_its_context_keeps_it_while_a_call_waits(rig):
    agent = await make(rig, message_buffer_autoclear=True)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert [m.message.role for m in rig.model.requests[-1].messages] == [Role.user, Role.assistant, Role.tool]
    assert len((await rig.kelpie.api().agents.get(agent.id)).message_ids) == 1


async def test_a_reset_ends_the_waiting(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await rig.kelpie.api().histories.reset(agent.id, False)
    assert await pending(rig, agent.id) is None
    with pytest.raises(InvalidInput):
        ended_error(await answer(rig, agent.id, ApprovalDecision("call_0", True)))
    await well_formed(rig, agent.id)


def test_previews_say_which_calls_wait():
    told = []
    preview = Preview(MessageId("message-1"), StepId("step-1"), 0, Thoughts.plain, told.append, {"one"})
    preview.take(ToolCallDelta(0, "a", "one", "{}"))
    preview.take(ToolCallDelta(1, "b", "two", "{}"))
    assert [(event.call_id, event.awaits) for event in told] == [("a", True), ("a", True), ("b", False), ("b", False)]


# --- cut off ---------------------------------------------------------------------------------------------------------


async def test_what_waits_survives_a_restart(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await rig.stop()
    await rig.start()
    with pytest.raises(PendingApproval):
        await rig.say(agent.id, "hello?")
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


async def test_cut_off_while_an_approved_tool_runs_outside_it_is_not_run_again(tmp_path):
    begun, ran = asyncio.Event(), []

    async def external(tool, context, arguments):
        ran.append(arguments["x"])
        begun.set()
        await asyncio.Event().wait()
        return Outcome("never")

    rig = await Rig(tmp_path / "kelpie.db", external=external).start()
    await rig.kelpie.api().tools.create(NewTool(SOURCE))
    agent = await make(rig, rules=("outside",), tools=("outside",))
    rig.model.script = [says("", ("outside", {"x": "1"}))]
    await rig.say(agent.id, "go")
    await rig.kelpie.api().sending.send(agent.id, SendRequest((), answers=(ApprovalDecision("call_0", True),)))
    async with asyncio.timeout(10):
        await begun.wait()
    await rig.stop()
    await rig.start()
    rig.model.script = [says("after all")]
    assert rows(await rig.say(agent.id, "and now?"))  # waits for its turn behind the recovery
    assert ran == ["1"] and await pending(rig, agent.id) is None
    (result,) = [r for row in await history(rig, agent.id) for r in row.tool_returns]
    assert "Interrupted" in result.text
    await well_formed(rig, agent.id)
    await rig.stop()


# --- what ends a wait without an answer ------------------------------------------------------------------------------


async def test_cancelling_denies_what_waits(rig):
    agent = await make(rig, tools=(APPEND, "conversation_search"))
    rig.model.script = [says("", append(), ("conversation_search", {"query": "x"}))]
    (request,) = rows(await rig.say(agent.id, "go"))
    assert await cancelling(rig).of_agent(agent.id) == {request.run_id: "cancelled"}
    assert await pending(rig, agent.id) is None and await value(rig, agent.id) == "Bob"
    assert [r.ok for row in await history(rig, agent.id) for r in row.tool_returns] == [False, False]
    await well_formed(rig, agent.id)


async def test_cancelling_keeps_what_was_answered_in_part_and_runs_nothing(rig):
    agent = await make(rig)
    rig.model.script = [says("", append(), append("coffee"), ("look", {"q": "x"}), append("milk"))]
    await answer(rig, agent.id, messages=("go",), client_tools=(CLIENT,))
    given = (
        ApprovalDecision("call_0", False, "no tea"),
        ApprovalDecision("call_1", True),
        ToolReturn("call_2", "", True, "seen"),
    )
    await answer(rig, agent.id, *given, partial=True)
    await cancelling(rig).of_agent(agent.id)
    results = {r.call_id: r for row in await history(rig, agent.id) for r in row.tool_returns}
    assert "no tea" in results["call_0"].text and not results["call_0"].ok
    assert not results["call_1"].ok and await value(rig, agent.id) == "Bob"
    assert (results["call_2"].ok, results["call_2"].text) == (True, "seen"), "a client's result is what it is"
    assert not results["call_3"].ok and "cancelled" in results["call_3"].text
    await well_formed(rig, agent.id)


def cancelling(rig):
    return rig.kelpie.api().cancellations


async def test_a_fork_leaves_what_waits_to_its_origin(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    forked = await rig.kelpie.api().conversations.fork(agent.id)
    rig.model.script = [says("from the fork")]
    assert rows(await rig.say(agent.id, "hello", conversation=forked.id))[-1].text == "from the fork"
    assert [m.message.role for m in rig.model.requests[-1].messages] == [Role.user, Role.user]
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert await value(rig, agent.id) == "Bob\ntea"


# --- repair ----------------------------------------------------------------------------------------------------------


async def test_repair_closes_what_is_orphaned_once_and_leaves_what_waits(rig):
    agent = await make(rig, rules=("conversation_search",), tools=(APPEND, "conversation_search"))
    rig.model.script = [says("", append()), says("done"), says("", ("conversation_search", {"query": "x"}))]
    await rig.say(agent.id, "go")
    await rig.say(agent.id, "and wait")
    found = await history(rig, agent.id)
    result = next(row for row in found if row.tool_returns)

    def spoil(tx):
        tx.exec_driver_sql("DELETE FROM messages WHERE id = ?", (result.id,))

    await rig.kelpie.world.database.transact(spoil)
    rig.kelpie.runtime.dispatcher.notify(agent.id, Activation.forget_context)
    done = await rig.kelpie.api().histories.repair(agent.id)
    assert len(done) == 2 and any("without a result" in line for line in done)
    assert await rig.kelpie.api().histories.repair(agent.id) == [], "the second time there is nothing to do"
    assert await pending(rig, agent.id) is not None
    await answer(rig, agent.id, ApprovalDecision("call_0", False))
    await well_formed(rig, agent.id)


async def test_a_wait_for_a_tool_that_is_gone_is_ended_by_repair(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    tool = next(t for t in (await rig.kelpie.api().agents.get(agent.id)).tools if t.name == APPEND)
    await rig.kelpie.api().tools.detach(agent.id, tool.id)
    assert len(await rig.kelpie.api().histories.repair(agent.id)) == 1 and await pending(rig, agent.id) is None
    await well_formed(rig, agent.id)


async def test_an_agent_mends_itself_when_it_is_loaded(rig):
    agent = await make(rig, rules=())
    rig.model.script = [says("", append()), says("done")]
    await rig.say(agent.id, "go")
    result = next(row for row in await history(rig, agent.id) if row.tool_returns)
    await rig.kelpie.runtime.dispatcher.release(agent.id)
    await rig.kelpie.world.database.transact(
        lambda tx: tx.exec_driver_sql("DELETE FROM messages WHERE id = ?", (result.id,))
    )
    await rig.say(agent.id, "and?")
    await well_formed(rig, agent.id)
    assert await rig.kelpie.api().histories.repair(agent.id) == []
