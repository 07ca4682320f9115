"""Agents that ask each other: what arrives, what comes back, what is refused, and that nobody waits for ever."""

import asyncio
import json

import pytest

from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import AgentType, NewAgent
from kelpie.core.conversations.agent_chain import HOPS_MAX, AgentChain
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import ModelError, ModelFault
from tests.agent.conftest import ended, rows, says
from tests.agent.multi_agent_rig import ASK, ASK_TAGGED, TELL, MultiAgentRig, asks, asks_tagged, read, results
from tests.agent.test_recovery import until

UNKNOWN = "agent-00000000-0000-4000-8000-000000000001"


@pytest.fixture
async def rig(tmp_path):
    made = await MultiAgentRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


async def soon(awaitable):
    async with asyncio.timeout(20):
        return await awaitable


async def test_the_tools_come_with_the_wish_for_them(rig):
    view = await rig.kelpie.api().agents.create(NewAgent(include_multi_agent_tools=True, include_base_tools=False))
    assert [tool.name for tool in view.tools] == [ASK, ASK_TAGGED, TELL]
    assert {tool.tool_type.value for tool in view.tools} == {"letta_multi_agent_core"}


async def test_an_agent_asks_another_and_gets_what_it_says(rig):
    ben = await rig.agent("Ben", says("The answer is 4."))
    ann = await rig.agent("Ann", asks(ben, "What is 2+2?"), says("Ben says 4."))
    events = await soon(rig.say(ann, "Ask Ben"))
    (result,) = results(events)
    assert result.ok and read(result) == {"agent_id": ben, "response": ["The answer is 4."]}
    assert rows(events)[-1].text == "Ben says 4." and ended(events).stop_reason is StopReason.end_turn
    _, said, answer = await rig.kelpie.api().histories.messages(ben, MessageQuery())
    assert said.role is Role.user and said.sender_id == ann and said.name == "Ann"
    assert ann in said.text and "'Ann'" in said.text and said.text.endswith("\nWhat is 2+2?")
    assert answer.text == "The answer is 4."


async def test_what_is_sent_by_tool_counts_as_said(rig):
    spoken = says("", ("send_message", {"message": "Four."}))
    ben = await rig.agent("Ben", spoken, agent_type=AgentType.memgpt_agent, include_base_tools=True)
    ann = await rig.agent("Ann", asks(ben))
    (result,) = results(await soon(rig.say(ann, "Ask")))
    assert read(result)["response"] == ["Four."]


async def test_the_others_failure_is_a_result_and_not_a_failure(rig):
    ben = await rig.agent("Ben", ModelError(ModelFault.bad_request, "No such model."))
    ann = await rig.agent("Ann", asks(ben), says("Ben is ill."))
    events = await soon(rig.say(ann, "Ask Ben"))
    (result,) = results(events)
    assert not result.ok and "No such model." in result.text
    assert rows(events)[-1].text == "Ben is ill." and ended(events).error is None


async def test_who_cannot_be_asked_is_told(rig):
    ben = await rig.agent("Ben")
    await rig.kelpie.api().agents.stop(ben)
    ann = await rig.agent("Ann")
    for other, told in ((UNKNOWN, "not found"), ("Ben", "id of an agent"), (ann, "your own id"), (ben, "stopped")):
        rig.script(ann, asks(other))
        events = await soon(rig.say(ann, "Ask"))
        (result,) = results(events)
        assert not result.ok and told in result.text, other
        assert ended(events).stop_reason is StopReason.end_turn


async def test_an_agent_of_another_organisation_is_not_there(rig):
    stranger = rig.kelpie.api(Caller(organization_id="org-00000000-0000-4000-8000-000000000009")).agents
    theirs = (await stranger.create(NewAgent(name="Theirs", include_base_tools=False, tags=("x",)))).agent.id
    ann = await rig.agent("Ann", asks(theirs), asks_tagged(["x"]))
    first, second = results(await soon(rig.say(ann, "Ask")))
    assert not first.ok and "not found" in first.text and read(second) == []


async def test_empty_and_endless_messages_are_refused(rig):
    ben = await rig.agent("Ben")
    ann = await rig.agent("Ann", asks(ben, "  "), asks(ben, "x" * 100_001), asks_tagged())
    for result in results(await soon(rig.say(ann, "Ask"))):
        assert not result.ok and "Nothing was sent" in result.text
    assert len(await rig.kelpie.api().histories.messages(ben, MessageQuery())) == 1


async def test_a_long_answer_is_cut_and_says_so(rig):
    ben = await rig.agent("Ben", says("y" * 30_000))
    ann = await rig.agent("Ann", asks(ben))
    (result,) = results(await soon(rig.say(ann, "Ask")))
    (text,) = read(result)["response"]
    assert 20_000 < len(text) < 20_200 and text.endswith("characters]")


async def test_one_who_says_nothing_is_reported(rig):
    ben = await rig.agent("Ben", says(""))
    ann = await rig.agent("Ann", asks(ben))
    (result,) = results(await soon(rig.say(ann, "Ask")))
    assert read(result)["response"] == [] and "without a reply" in read(result)["note"]


async def test_a_question_to_those_with_tags_gets_each_answer(rig):
    ben = await rig.agent("Ben", says("B"), tags=("red", "big"))
    cid = await rig.agent("Cid", ModelError(ModelFault.server, "Down."), tags=("red", "small"))
    await rig.agent("Dan", says("D"), tags=("red",))
    eve = await rig.agent("Eve", says("E"), tags=("red", "small"))
    await rig.kelpie.api().agents.stop(eve)
    ann = await rig.agent("Ann", asks_tagged(["red"], ["big", "small"]), says("Done."), tags=("red", "big"))
    events = await soon(rig.say(ann, "Ask all"))
    (result,) = results(events)
    found = {one["agent_id"]: one for one in read(result)}
    assert list(found) == [ben, cid, eve]
    assert found[ben]["response"] == ["B"] and "Down." in found[cid]["error"] and "stopped" in found[eve]["error"]
    assert rows(events)[-1].text == "Done."


async def test_more_matches_than_can_be_asked_are_refused(rig, monkeypatch):
    monkeypatch.setattr("kelpie.agent.multi_agent.messaging_tools.ADDRESSEES_MAX", 1)
    for name in ("Ben", "Cid"):
        await rig.agent(name, tags=("red",))
    ann = await rig.agent("Ann", asks_tagged(["red"]))
    (result,) = results(await soon(rig.say(ann, "Ask")))
    assert not result.ok and "more specific tags" in result.text


async def test_a_ring_is_refused_at_once(rig):
    ann, ben, cid = [await rig.agent(name) for name in ("Ann", "Ben", "Cid")]
    rig.script(ann, asks(ben), says("ann done"))
    rig.script(ben, asks(cid), says("ben done"))
    rig.script(cid, asks(ann), says("cid done"))
    events = await soon(rig.say(ann, "Go"))
    assert read(results(events)[0])["response"] == ["ben done"]
    history = await rig.kelpie.api().histories.messages(cid, MessageQuery())
    (refused,) = [r for row in history for r in row.tool_returns]
    assert not refused.ok and "is waiting for your answer" in refused.text
    assert len(await rig.kelpie.api().histories.messages(ann, MessageQuery())) == 5  # nothing came in from Cid


async def test_a_ring_through_tags_is_refused_for_the_one_it_concerns(rig):
    ann = await rig.agent("Ann", tags=("team",))
    dan = await rig.agent("Dan", says("dan"), tags=("team",))
    ben = await rig.agent("Ben", asks_tagged(["team"]), says("ben done"))
    rig.script(ann, asks(ben), says("ann done"))
    await soon(rig.say(ann, "Go"))
    history = await rig.kelpie.api().histories.messages(ben, MessageQuery())
    (result,) = [r for row in history for r in row.tool_returns]
    found = {one["agent_id"]: one for one in read(result)}
    assert "is waiting for your answer" in found[ann]["error"] and found[dan]["response"] == ["dan"]


async def test_two_who_ask_each_other_at_once_do_not_wait_for_ever(rig):
    ann, ben = await rig.agent("Ann"), await rig.agent("Ben")
    rig.script(ann, asks(ben), says("ann done"), says("ann answers"))
    rig.script(ben, asks(ann), says("ben done"), says("ben answers"))
    gates = [rig.model.gate(one) for one in (ann, ben)]
    both = asyncio.gather(rig.say(ann, "Go"), rig.say(ben, "Go"))
    for one in (ann, ben):  # both turns have begun before either asks
        await soon(rig.model.waiting[one].wait())
    for gate in gates:
        gate.set()
    told = [results(events)[0] for events in await soon(both)]
    assert sorted(result.ok for result in told) == [False, True]
    assert "waiting for an answer from you" in next(result.text for result in told if not result.ok)


async def test_a_question_that_is_not_read_in_time_is_taken_back(tmp_path):
    rig = await MultiAgentRig(tmp_path / "kelpie.db", reply_s=0.05).start()
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    gate = rig.model.gate(ben)
    busy = asyncio.create_task(rig.say(ben, "Think."))
    await soon(rig.model.waiting[ben].wait())
    rig.script(ann, asks(ben, "second"), says("never mind"))
    events = await soon(rig.say(ann, "Go"))
    assert "withdrawn" in results(events)[0].text and rows(events)[-1].text == "never mind"
    gate.set()
    await soon(busy)
    await soon(rig.say(ben, "Are you there?"))
    said = [row.text for row in await rig.kelpie.api().histories.messages(ben, MessageQuery()) if row.role is Role.user]
    assert said == ["Think.", "Are you there?"]
    await rig.stop()


async def test_a_question_that_is_not_answered_in_time_goes_on_without_its_asker(tmp_path):
    rig = await MultiAgentRig(tmp_path / "kelpie.db", reply_s=2.0).start()
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    await rig.say(ben, "Wake up.")
    gate = rig.model.gate(ben)
    rig.script(ann, asks(ben), says("never mind"))
    events = await soon(rig.say(ann, "Go"))
    assert "is still working, in run-" in results(events)[0].text and rows(events)[-1].text == "never mind"
    gate.set()
    await soon(rig.say(ben, "Are you there?"))
    said = [row.text for row in await rig.kelpie.api().histories.messages(ben, MessageQuery()) if row.role is Role.user]
    assert len(said) == 3 and said[1].endswith("hello")
    await rig.stop()


async def test_cancelling_the_one_who_asks_ends_the_wait(rig):
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    gate = rig.model.gate(ben)
    busy = asyncio.create_task(rig.say(ben, "Think."))
    await soon(rig.model.waiting[ben].wait())
    rig.script(ann, asks(ben, "never read"))
    asking = asyncio.create_task(rig.say(ann, "Go"))

    async def has_asked():
        return any(m.tool_calls for m in await rig.kelpie.api().histories.messages(ann, MessageQuery()))

    await until(has_asked)
    cancelled = await soon(rig.kelpie.api().cancellations.of_agent(ann, None))
    assert list(cancelled.values()) == ["cancelled"]
    assert ended(await soon(asking)).stop_reason is StopReason.cancelled
    gate.set()
    await soon(busy)
    await soon(rig.say(ben, "Next."))
    said = [m.text for m in await rig.kelpie.api().histories.messages(ben, MessageQuery()) if m.role is Role.user]
    assert said == ["Think.", "Next."]  # what nobody waits for any more is not delivered
    assert rows(await soon(rig.say(ann, "Are you well?")))[-1].text == "ok"


async def test_depth_is_bounded(rig):
    ben = await rig.agent("Ben")
    ann = await rig.agent("Ann", asks(ben))
    (result,) = results(await soon(rig.say(ann, "Go", chain=AgentChain((), HOPS_MAX))))
    assert not result.ok and "Nothing was sent" in result.text


async def test_a_chain_is_stored_with_the_run(rig):
    ben = await rig.agent("Ben")
    ann = await rig.agent("Ann", asks(ben))
    await soon(rig.say(ann, "Go"))
    row = await rig.kelpie.world.database.read(
        lambda tx: tx.exec_driver_sql("SELECT input FROM runs WHERE agent_id = ?", (ben,)).scalar()
    )
    assert json.loads(row)["chain"] == {"waiting": [ann], "hops": 1}
