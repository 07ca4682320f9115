"""What a cancel ends is what was named: not another conversation, another run, or another agent."""

import asyncio

import pytest

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import NewAgent, ToolRule
from kelpie.core.conversations.conversations import NewConversation
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import RunStatus, StopReason
from kelpie.core.errors import Conflict
from kelpie.core.ids import RunId
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.test_approvals import APPEND, append
from tests.agent.test_cancelling import heard
from tests.agent.test_recovery import begin, behind, until


async def made(rig: Rig, *, waits: bool = False):
    rules = (ToolRule("requires_approval", APPEND),) if waits else ()
    new = NewAgent(memory_blocks=(NewBlock("human", "Bob"),), tools=(APPEND,), tool_rules=rules)
    return (await rig.kelpie.api().agents.create(new)).agent


async def opened(rig, agent, count):
    return [(await rig.kelpie.api().conversations.create(agent.id, NewConversation())).id for _ in range(count)]


async def asked(rig, times):
    async def so_often():
        return len(rig.model.requests) >= times

    await until(so_often)


async def status(rig, run_id):
    return (await rig.kelpie.api().runs.get(RunId(run_id))).status


async def waiting(rig, agent):
    def read(tx):
        query = "SELECT conversation_id FROM approvals WHERE agent_id = ? ORDER BY conversation_id"
        return [lane for (lane,) in tx.exec_driver_sql(query, (agent.id,))]

    return await rig.kelpie.world.database.read(read)


@pytest.mark.parametrize("default", [False, True])
async def test_a_cancel_of_a_conversation_spares_the_turns_of_others(rig, default):
    agent = await made(rig)
    one, other = await opened(rig, agent, 2)
    if default:
        one = ""
    rig.model.hold = asyncio.Event()
    turns = {lane: await begin(rig, agent.id, "hi", conversation=lane) for lane in (one, other)}
    await asked(rig, 2)
    queued = {lane: await behind(rig, agent.id, "later", conversation=lane) for lane in (one, other)}
    cancellations = rig.kelpie.api().cancellations
    told = await (cancellations.of_default(agent.id) if default else cancellations.of_conversation(one))
    assert told == {turns[one].run_id: "cancelled", queued[one].id: "cancelled"}
    assert ended(await heard(turns[one])).stop_reason is StopReason.cancelled
    assert await status(rig, turns[other].run_id) is RunStatus.running
    assert await status(rig, queued[other].id) is RunStatus.created
    rig.model.hold.set()
    assert ended(await heard(turns[other])).stop_reason is StopReason.end_turn
    await until(lambda: has(rig, queued[other].id, RunStatus.completed))
    assert await status(rig, queued[one].id) is RunStatus.cancelled


async def has(rig, run_id, wanted):
    return await status(rig, run_id) is wanted


async def test_a_cancel_of_a_conversation_spares_what_waits_in_others(rig):
    agent = await made(rig, waits=True)
    lanes = ["", *await opened(rig, agent, 2)]
    for lane in lanes:
        rig.model.script = [says("", append())]
        await rig.say(agent.id, "go", conversation=lane)
    assert await waiting(rig, agent) == sorted(lanes)
    await rig.kelpie.api().cancellations.of_conversation(lanes[1])
    assert await waiting(rig, agent) == sorted(["", lanes[2]])
    await rig.kelpie.api().cancellations.of_default(agent.id)
    assert await waiting(rig, agent) == [lanes[2]]
    with pytest.raises(Conflict):
        await rig.kelpie.api().cancellations.of_conversation(lanes[1])


async def test_a_cancel_by_id_spares_the_other_runs_of_the_agent(rig):
    agent = await made(rig, waits=True)
    (lane,) = await opened(rig, agent, 1)
    rig.model.script = [says("", append())]
    asker = ended(await rig.say(agent.id, "go", conversation=lane)).run_id
    rig.model.hold = asyncio.Event()
    turn = await begin(rig, agent.id, "hi")
    await asked(rig, 2)
    first, second = [await behind(rig, agent.id, text) for text in ("one", "two")]
    cancellations = rig.kelpie.api().cancellations
    assert await cancellations.of_agent(agent.id, [first.id]) == {first.id: "cancelled"}
    assert await status(rig, second.id) is RunStatus.created and await waiting(rig, agent) == [lane]
    assert await cancellations.of_agent(agent.id, [asker]) == {asker: "cancelled"}
    assert await waiting(rig, agent) == [] and await status(rig, turn.run_id) is RunStatus.running
    rig.model.hold.set()
    assert ended(await heard(turn)).stop_reason is StopReason.end_turn
    await until(lambda: has(rig, second.id, RunStatus.completed))


async def test_a_run_of_another_agent_is_not_cancelled_and_not_told_as_over(rig):
    agent, other = await made(rig), await made(rig)
    over = ended(await rig.say(other.id, "before")).run_id
    rig.model.hold = asyncio.Event()
    turn = await begin(rig, other.id, "hi")
    await asked(rig, 2)
    told = await rig.kelpie.api().cancellations.of_agent(agent.id, [turn.run_id, over])
    assert told == {turn.run_id: "failed", over: "failed"}
    with pytest.raises(Conflict):
        await rig.kelpie.api().cancellations.of_agent(agent.id)
    rig.model.hold.set()
    assert rows(await heard(turn))[-1].text == "ok"


async def test_what_waits_in_the_mailbox_keeps_its_place_when_another_is_cancelled(rig):
    agent = await made(rig)
    rig.model.hold = asyncio.Event()
    turn = await begin(rig, agent.id, "first")
    await asked(rig, 1)
    one, two, three = [await begin(rig, agent.id, text) for text in ("one", "two", "three")]
    assert await rig.kelpie.api().cancellations.of_agent(agent.id, [two.run_id]) == {two.run_id: "cancelled"}
    assert ended(await heard(two)).stop_reason is StopReason.cancelled
    run = await rig.kelpie.api().runs.get(two.run_id)
    assert run.metadata["run_type"] == "send_message" and run.step_count == 0
    rig.model.hold.set()
    for each in (turn, one, three):
        assert ended(await heard(each)).stop_reason is StopReason.end_turn
    said = [entry.message.text for entry in rig.model.requests[-1].messages if entry.message.role is Role.user]
    assert said == ["first", "one", "three"]


async def test_a_cancelled_message_may_be_sent_again_under_its_id(rig):
    agent = await made(rig)
    rig.model.hold = asyncio.Event()
    turn = await begin(rig, agent.id, "first")
    await asked(rig, 1)
    message = NewMessage(Role.user, (Text("again"),), otid="otid-1")
    sent = await rig.kelpie.api().sending.send(agent.id, SendRequest((message,)))
    await rig.kelpie.api().cancellations.of_agent(agent.id, [sent.run_id])
    rig.model.hold.set()
    await heard(turn)
    rig.model.script = [says("heard")]
    events = await heard(await rig.kelpie.api().sending.send(agent.id, SendRequest((message,))))
    assert rows(events)[-1].text == "heard"
