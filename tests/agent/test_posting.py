"""Messages between agents that nobody waits for: written with the result of the call, read in a turn of their own."""

import asyncio

import pytest

from kelpie.core.conversations.agent_chain import HOPS_MAX
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from tests.agent.conftest import ended, says
from tests.agent.multi_agent_rig import MultiAgentRig, results, tells
from tests.agent.test_companions import settled


@pytest.fixture
async def rig(tmp_path):
    made = await MultiAgentRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


async def test_a_message_is_read_in_a_turn_of_its_own(rig):
    ben, ann = await rig.agent("Ben", says("Noted.")), await rig.agent("Ann")
    rig.script(ann, tells(ben, "The door is open."), says("I told Ben."))
    events = await rig.say(ann, "Tell Ben")
    (result,) = results(events)
    (run,) = await settled(rig, ben, 1)
    assert result.ok and run.id in result.text and run.status is RunStatus.completed and run.background
    _, said, answer = await rig.kelpie.api().histories.messages(ben, MessageQuery())
    assert said.sender_id == ann and said.name == "Ann" and said.text.endswith("\nThe door is open.")
    assert answer.text == "Noted." and ended(events).stop_reason is StopReason.end_turn


async def test_a_busy_agent_reads_it_afterwards(rig):
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    gate = rig.model.gate(ben)
    first = asyncio.create_task(rig.say(ben, "Think."))
    await rig.model.waiting[ben].wait()
    rig.script(ann, tells(ben), says("done"))
    assert results(await rig.say(ann, "Tell Ben"))[0].ok  # it does not wait
    gate.set()
    await first
    await settled(rig, ben, 2)
    assert [m.role.value for m in await rig.kelpie.api().histories.messages(ben, MessageQuery())][1:] == [
        "user",
        "assistant",
    ] * 2


async def test_who_cannot_be_written_to_is_told_and_nothing_is_kept(rig):
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    await rig.kelpie.api().agents.stop(ben)
    for other, told in (
        ("agent-00000000-0000-4000-8000-000000000001", "not found"),
        ("nobody", "id of an agent"),
        (ann, "your own id"),
        (ben, "stopped"),
    ):
        rig.script(ann, tells(other), says("ok"))
        (result,) = results(await rig.say(ann, "Tell"))
        assert not result.ok and told in result.text, other
    assert await rig.kelpie.api().runs.page(RunQuery(agent_ids=(ben,))) == []


async def test_messages_before_one_agent_are_bounded(rig, monkeypatch):
    monkeypatch.setattr("kelpie.tools.builtin.async_messages.WAITING_MAX", 1)
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    rig.model.gate(ben)
    blocked = asyncio.create_task(rig.say(ben, "Think."))
    await rig.model.waiting[ben].wait()
    rig.script(ann, tells(ben), tells(ben), says("ok"))
    first, second = results(await rig.say(ann, "Tell twice"))
    assert first.ok and not second.ok and "waiting messages" in second.text
    rig.model.gates[ben].set()
    await blocked
    await settled(rig, ben, 2)


async def test_two_who_keep_writing_to_each_other_come_to_an_end(rig):
    ann, ben = await rig.agent("Ann"), await rig.agent("Ben")
    for one, other in ((ann, ben), (ben, ann)):
        rig.script(one, *[line for _ in range(HOPS_MAX) for line in (tells(other), says("sent"))])
    await rig.say(ann, "Go")
    told = await settled(rig, ann, HOPS_MAX // 2 + 1)
    assert len(told) + len(await settled(rig, ben, HOPS_MAX // 2)) == HOPS_MAX + 1
    last = [r for m in await rig.kelpie.api().histories.messages(ann, MessageQuery()) for r in m.tool_returns][-1]
    assert not last.ok and "since the last message from a person" in last.text


async def test_one_that_was_written_down_survives_the_server(rig, tmp_path):
    ben, ann = await rig.agent("Ben"), await rig.agent("Ann")
    rig.model.gate(ben)
    blocked = asyncio.create_task(rig.say(ben, "Think."))
    await rig.model.waiting[ben].wait()
    rig.script(ann, tells(ben, "Remember me."), says("ok"))
    assert results(await rig.say(ann, "Tell"))[0].ok
    await rig.stop()
    blocked.cancel()
    again = MultiAgentRig(tmp_path / "kelpie.db")
    await again.start()
    await settled(again, ben, 2)
    said = [m.text for m in await again.kelpie.api().histories.messages(ben, MessageQuery()) if m.role is Role.user]
    assert sum(text.endswith("Remember me.") for text in said) == 1
    await again.stop()
