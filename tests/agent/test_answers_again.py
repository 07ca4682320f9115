"""Answers to waiting calls that come again after their turn failed: it goes on from there, and says nothing twice."""

import pytest

from kelpie.agent.turn import approval_answers
from kelpie.core.conversations.messages import ApprovalDecision, Role
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import InvalidInput, ModelError, ModelFault
from tests.agent.conftest import ended, rows, says
from tests.agent.test_approvals import APPEND, answer, append, history, make, pending, value, well_formed

YES = ApprovalDecision("call_0", True)
DOWN = ModelError(ModelFault.bad_request, "down")


async def ask(rig, *fails, rules=(APPEND,), tools=(APPEND,)):
    """An agent whose turn failed right after the answers, or after the replies that come before the failure."""
    agent = await make(rig, rules=rules, tools=tools)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    rig.model.script = [*fails, DOWN]
    return agent


async def words(rig, agent_id):
    return [row.text for row in await history(rig, agent_id) if row.role is Role.user]


async def test_words_that_failed_before_their_first_step_are_said_once_with_the_second_try(rig):
    agent = await ask(rig)
    failed = await answer(rig, agent.id, YES, messages=["and hurry"])
    assert ended(failed).stop_reason is StopReason.llm_api_error and await words(rig, agent.id) == ["go"]
    rig.model.script = [says("up again")]
    assert rows(await answer(rig, agent.id, YES, messages=["and hurry"]))[-1].text == "up again"
    assert await words(rig, agent.id) == ["go", "and hurry"] and await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


async def test_words_that_a_step_has_taken_in_are_not_said_again(rig):
    agent = await ask(rig, says("", ("conversation_search", {"query": "x"})), tools=(APPEND, "conversation_search"))
    await answer(rig, agent.id, YES, messages=["and hurry"])
    assert await words(rig, agent.id) == ["go", "and hurry"]
    rig.model.script = [says("up again")]
    assert rows(await answer(rig, agent.id, YES, messages=["and hurry"]))[-1].text == "up again"
    assert await words(rig, agent.id) == ["go", "and hurry"]
    assert [entry.message.text for entry in rig.model.requests[-1].messages].count("and hurry") == 1
    await well_formed(rig, agent.id)


async def test_answers_with_the_same_words_are_told_again_and_with_others_they_are_a_message(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    rig.model.script = [says("done")]
    first = await answer(rig, agent.id, YES, messages=["and hurry"])
    asked = len(rig.model.requests)
    again = await answer(rig, agent.id, YES, messages=["and hurry"])
    assert [row.id for row in rows(again)] == [row.id for row in rows(first)] and len(rig.model.requests) == asked
    rig.model.script = [says("slowly then")]
    assert rows(await answer(rig, agent.id, YES, messages=["no, slowly"]))[-1].text == "slowly then"
    assert await words(rig, agent.id) == ["go", "and hurry", "no, slowly"] and await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


async def test_once_others_have_spoken_a_failed_turn_does_not_go_on(rig):
    agent = await ask(rig)
    await answer(rig, agent.id, YES)
    rig.model.script = [says("fine")]
    await rig.say(agent.id, "how are you?")
    asked = len(rig.model.requests)
    error = ended(await answer(rig, agent.id, YES)).error
    assert isinstance(error, InvalidInput) and "No tool call is currently awaiting" in str(error)
    assert len(rig.model.requests) == asked
    await well_formed(rig, agent.id)


async def test_a_turn_that_goes_on_has_the_calls_of_all_its_runs_behind_it(rig):
    """Asked for again after the failure, it is the third run of its turn, which a wait then names in order."""
    agent = await ask(rig)
    await answer(rig, agent.id, YES)
    rig.model.script = [says("", append("coffee"))]
    (request,) = [row for row in rows(await answer(rig, agent.id, YES)) if row.tool_calls]
    waiting = await pending(rig, agent.id)
    assert waiting is not None and waiting.id == request.id
    runs = list(dict.fromkeys(row.run_id for row in await history(rig, agent.id)))
    stored = await rig.kelpie.world.database.read(
        lambda tx: approval_answers.rows.get(tx, agent.id, "").runs  # the rows of what waits
    )
    assert list(stored) == runs and len(runs) == 3 and stored[-1] == request.run_id
    rig.model.script = [says("both")]
    await answer(rig, agent.id, ApprovalDecision("call_0", True))
    assert await value(rig, agent.id) == "Bob\ntea\ncoffee"
    await well_formed(rig, agent.id)


@pytest.mark.parametrize("cold", [False, True])
async def test_a_repeat_is_known_after_many_other_answers(rig, cold):
    agent = await make(rig)
    firsts = []
    for number in range(3):
        rig.model.script = [says("", append(f"tea {number}"))]
        await rig.say(agent.id, "go")
        rig.model.script = [says(f"done {number}")]
        firsts.append(await answer(rig, agent.id, ApprovalDecision("call_0", True, arguments=_with(number))))
    if cold:
        await rig.kelpie.runtime.dispatcher.release(agent.id)
    asked = len(rig.model.requests)
    for number in range(3):
        again = await answer(rig, agent.id, ApprovalDecision("call_0", True, arguments=_with(number)))
        assert [row.id for row in rows(again)] == [row.id for row in rows(firsts[number])]
    assert len(rig.model.requests) == asked


def _with(number):
    return f'{{"label": "human", "content": "juice {number}"}}'
