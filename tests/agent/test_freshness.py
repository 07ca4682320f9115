"""Keeping up: a live agent looks again when a write is in doubt, and never takes in a history emptied meanwhile."""

import asyncio

import pytest

from kelpie.agent.journal.commits import JournalPosition
from kelpie.agent.live.reload import RELOADS_MAX, catch_up
from kelpie.agent.prompt import context as contexts
from kelpie.agent.prompt.context import Context
from kelpie.core.agents.agent import AgentType, NewAgent
from kelpie.core.conversations.conversations import NewConversation
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.core.errors import CommitUnknown, NotFound, StorageBusy
from kelpie.core.ids import RunId
from kelpie.core.memory.blocks import NewBlock
from kelpie.world.sqlite import database as sqlite
from kelpie.world.sqlite.group_commit import JobFailure
from tests.agent.conftest import ended, says
from tests.agent.test_recovery import until

NOTE = ("memory_insert", {"label": "human", "new_string": "Likes tea"})


async def make(rig, **fields):
    return (await rig.kelpie.api().agents.create(NewAgent(memory_blocks=(NewBlock("human", "Bob"),), **fields))).agent


async def asked(rig, times):
    async def so_often():
        return len(rig.model.requests) == times

    await until(so_often)


@pytest.fixture
def answers_lost(monkeypatch):
    """While it is set, commits happen and their answers are lost."""
    lost = asyncio.Event()
    original = sqlite.run_group

    def run_group(*arguments, **options):
        outcomes = original(*arguments, **options)
        return [JobFailure(CommitUnknown("lost")) for _ in outcomes] if lost.is_set() else outcomes

    monkeypatch.setattr(sqlite, "run_group", run_group)
    return lost


async def test_an_edit_in_doubt_is_seen_although_its_repeat_finds_nothing_to_do(rig, answers_lost):
    agent = await make(rig)
    await rig.say(agent.id, "hello")
    (block,) = await rig.kelpie.api().blocks.of_agent(agent.id)
    answers_lost.set()
    with pytest.raises(CommitUnknown):
        await rig.kelpie.api().blocks.delete(block.id)
    answers_lost.clear()
    with pytest.raises(NotFound):
        await rig.kelpie.api().blocks.delete(block.id)
    await rig.say(agent.id, "hello again")
    first, second = rig.model.requests
    assert "Bob" in first.system and "Bob" not in second.system


async def test_an_emptying_in_doubt_is_seen(rig, answers_lost):
    agent = await make(rig)
    await rig.say(agent.id, "hello")
    answers_lost.set()
    with pytest.raises(CommitUnknown):
        await rig.kelpie.api().histories.reset(agent.id, False)
    answers_lost.clear()
    await rig.say(agent.id, "who are you?")
    assert [entry.message.text for entry in rig.model.requests[-1].messages] == ["who are you?"]


async def test_a_turn_whose_history_is_emptied_ends_and_adds_nothing(rig):
    agent = await make(rig)
    rig.model.script = [says("", NOTE), says("done")]
    rig.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(rig.say(agent.id, "note this"))
    await asked(rig, 1)
    rig.model.hold.set()
    rig.model.hold = asyncio.Event()
    await asked(rig, 2)
    await rig.kelpie.api().histories.reset(agent.id, False)
    rig.model.hold.set()
    assert ended(await turn).stop_reason is StopReason.cancelled
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [message.role for message in history] == [Role.system]
    rig.model.hold = None
    assert ended(await rig.say(agent.id, "next")).stop_reason is StopReason.end_turn
    assert [entry.message.text for entry in rig.model.requests[-1].messages] == ["next"]


async def test_thoughts_that_are_switched_off_during_a_step_are_out_of_the_calls_of_the_next_prompt(rig):
    agent = await make(rig, agent_type=AgentType.memgpt_agent)
    append = {"label": "human", "content": "Likes tea", "request_heartbeat": True, "thinking": "A fact."}
    rig.model.script = [says("", ("core_memory_append", append)), says("", ("send_message", {"message": "Noted."}))]
    rig.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(rig.say(agent.id, "I like tea"))
    await asked(rig, 1)
    await rig.kelpie.api().agents.update(agent.id, {"inner_thoughts": False})
    rig.model.hold.set()
    assert ended(await turn).stop_reason is StopReason.end_turn
    first, second = (
        [call.arguments for entry in request.messages for call in entry.message.tool_calls]
        for request in rig.model.requests
    )
    assert first and all('"thinking"' in arguments for arguments in first)
    assert len(second) > len(first) and not any('"thinking"' in arguments for arguments in second)


class Emptied:
    """A database whose context is emptied while it is being read, so many times."""

    def __init__(self, lane, times):
        self.reads = 0
        self.latest = None
        self._lane = lane
        self._times = times

    async def read(self, _fn):
        self.reads += 1
        if self.reads <= self._times:
            self._lane.forget()
        self.latest = Context([])
        return self._lane.loaded, self.latest


@pytest.mark.parametrize("times", [0, 1, RELOADS_MAX - 1])
async def test_a_context_read_before_an_emptying_is_not_taken_in_after_it(rig, times):
    agent = await make(rig)
    await rig.say(agent.id, "hello")
    live = rig.kelpie.runtime.dispatcher.handler(agent.id)._live
    lane = live.main
    lane.forget()
    database = Emptied(lane, times)
    run = Run(RunId("run-00000000-0000-4000-8000-000000000001"), agent.id, RunStatus.running, 0)
    await catch_up(database, lane, JournalPosition(live.claim, run))
    assert database.reads == times + 1, "memory and history are of one moment"
    assert lane.context is database.latest and not lane.stale


async def test_a_history_that_never_stands_still_is_told(rig):
    agent = await make(rig)
    await rig.say(agent.id, "hello")
    live = rig.kelpie.runtime.dispatcher.handler(agent.id)._live
    lane = live.main
    lane.forget()
    run = Run(RunId("run-00000000-0000-4000-8000-000000000001"), agent.id, RunStatus.running, 0)
    with pytest.raises(StorageBusy, match="kept changing while they were read"):
        await catch_up(Emptied(lane, RELOADS_MAX), lane, JournalPosition(live.claim, run))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
async def test_a_history_of_several_pages_is_shown_once_after_a_restart(rig, monkeypatch, size):
    """In the default conversation and in another one, with a page that ends at a message of either."""
    monkeypatch.setattr(contexts, "PAGE_ROWS", size)
    agent = await make(rig)
    side = (await rig.kelpie.api().conversations.create(agent.id, NewConversation())).id
    for number in range(4):
        await rig.say(agent.id, f"tok-{number}")
        await rig.say(agent.id, f"side-{number}", conversation=side)
    known = list(rig.model.requests)
    await rig.stop()
    await rig.start()
    async with asyncio.timeout(60):
        await rig.say(agent.id, "tok-4")
        await rig.say(agent.id, "side-4", conversation=side)
    for before, after, word in zip(known[-2:], rig.model.requests[-2:], ("tok", "side"), strict=True):
        shown = [entry.message.id for entry in after.messages]
        assert shown[: len(before.messages)] == [entry.message.id for entry in before.messages]
        asked = [entry.message.text for entry in after.messages if entry.message.role is Role.user]
        assert asked == [f"{word}-{number}" for number in range(5)] and len(shown) == 9
