"""Contexts that are compacted while calls in them wait, or right after their answers: the request stays until it has
its results, and the wait goes on."""

import pytest

from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import ApprovalDecision, Role
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import PendingApproval
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import ended, rows, says
from tests.agent.test_approvals import answer, cancelling, pending, value
from tests.agent.test_compaction import NOTE, OVERFLOW, context, fill, make, rig, shown

assert rig  # the fixture

RULES = (ToolRule("requires_approval", NOTE[0]),)


async def waiting(rig, turns=3, size=500, **fields):
    """An agent that has said something and waits for somebody's word."""
    agent = await make(rig, tools=(NOTE[0],), tool_rules=RULES, memory_blocks=(NewBlock("human", "Bob"),), **fields)
    await fill(rig, agent, turns, size)
    rig.model.script = [says("", NOTE)]
    events = await rig.say(agent.id, "now write it down")
    assert ended(events).stop_reason is StopReason.requires_approval
    return agent, rows(events)[-1]


async def still_waits(rig, agent, request):
    """In memory, when it is read again, and in what the model would see next."""
    for _ in range(2):
        with pytest.raises(PendingApproval):
            await rig.say(agent.id, "hello?")
        await rig.kelpie.runtime.dispatcher.release(agent.id)
    assert (await pending(rig, agent.id)).id == request.id == (await context(rig, agent))[-1].id


def has_its_result(request, prompt):
    """Whether a prompt holds the request with its results right after it, and what was asked before it."""
    said = shown(prompt)
    at = next(i for i, row in enumerate(said) if any(call.id == "call_0" for call in row.tool_calls))
    assert [r.call_id for r in said[at + 1].tool_returns] == [call.id for call in request.tool_calls]
    assert any(row.text == "now write it down" for row in said[:at])


@pytest.mark.parametrize("mode", ["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"])
async def test_a_context_compacted_on_request_keeps_what_waits(rig, mode):
    agent, request = await waiting(rig, turns=6)
    before = len(await context(rig, agent))
    await rig.kelpie.api().context_windows.compact(agent.id, {"mode": mode})
    assert len(await context(rig, agent)) < before and (await context(rig, agent))[1].role is Role.summary
    await still_waits(rig, agent, request)
    rig.model.script = [says("written")]
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    has_its_result(request, rig.model.requests[-1])
    assert await value(rig, agent.id) == "Bob\nx"


async def test_a_context_that_is_full_is_compacted_after_the_answer_and_keeps_the_call(rig):
    agent, request = await waiting(rig, turns=5, size=2_600)
    await still_waits(rig, agent, request)
    rig.model.script = [OVERFLOW, says("written")]
    events = await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert ended(events).stop_reason is StopReason.end_turn and rig.model.summing
    has_its_result(request, rig.model.requests[-1])
    assert await value(rig, agent.id) == "Bob\nx", "and it ran once"


async def test_what_waits_in_a_compacted_context_can_be_cancelled(rig):
    agent, request = await waiting(rig, turns=6)
    await rig.kelpie.api().context_windows.compact(agent.id, {"mode": "all"})
    assert await cancelling(rig).of_agent(agent.id) == {request.run_id: "cancelled"}
    rig.model.script = [says("still here")]
    assert rows(await rig.say(agent.id, "are you there?"))[-1].said == "still here"
    assert [row.role for row in shown(rig.model.requests[-1])][-3:] == [Role.assistant, Role.tool, Role.user]
