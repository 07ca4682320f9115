"""Agents whose context is cleared between turns: by type or by setting, also when a turn or the server fails."""

import asyncio

import pytest

from kelpie.core.agents.agent import AgentType, NewAgent
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import CommitUnknown, ModelError, ModelFault, StorageError
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import ended, rows, says
from tests.agent.test_recovery import begin, behind, until

NOTE = ("archival_memory_insert", {"content": "x", "request_heartbeat": True})


async def make(rig, agent_type=AgentType.letta_v1_agent, **fields):
    fields.setdefault("message_buffer_autoclear", True)
    fields.setdefault("memory_blocks", (NewBlock("human", "Name: Bob"),))
    return (await rig.kelpie.api().agents.create(NewAgent(agent_type=agent_type, **fields))).agent


def said(request):
    return [(entry.message.role, entry.message.text) for entry in request.messages]


async def context(rig, agent):
    ids = (await rig.kelpie.api().agents.get(agent.id)).message_ids
    return [(await rig.kelpie.api().histories.message(i)).role for i in ids]


async def test_a_turn_sees_itself_and_nothing_before_it(rig):
    agent = await make(rig)
    edit = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
    rig.model.script = [says("", edit), says("one done"), says("two done")]
    await rig.say(agent.id, "one")
    assert await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "two")
    _, second, third = rig.model.requests
    assert [role for role, _ in said(second)] == [Role.user, Role.assistant, Role.tool]
    assert said(third) == [(Role.user, "two")]
    assert "Likes tea" in third.system, "blocks are not part of what is cleared"
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.text for m in history if m.role is Role.user] == ["one", "two"], "the history keeps everything"
    await rig.stop()
    await rig.start()
    await rig.say(agent.id, "three")
    assert said(rig.model.requests[-1]) == [(Role.user, "three")]


async def test_a_workflow_is_cleared_although_its_maker_said_no(rig):
    agent = await make(
        rig,
        AgentType.workflow_agent,
        message_buffer_autoclear=False,
        tools=("archival_memory_insert",),
        include_base_tool_rules=False,
    )
    rig.model.script = [says("", NOTE), says("", ("archival_memory_insert", {"content": "y"}))]
    events = await rig.say(agent.id, "do it")
    assert ended(events).stop_reason is StopReason.end_turn and len(rig.model.requests) == 2
    assert rig.model.requests[0].tool_choice == "required"
    assert await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "again")
    assert said(rig.model.requests[-1]) == [(Role.user, "again")]


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_turn_that_fails_is_cleared_too(rig, steps_before):
    agent = await make(rig, tools=("archival_memory_insert",))
    rig.model.script = [says("", NOTE)] * steps_before + [ModelError(ModelFault.server, "down")]
    assert ended(await rig.say(agent.id, "one")).stop_reason is StopReason.llm_api_error
    assert await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "two")
    assert said(rig.model.requests[-1]) == [(Role.user, "two")]


async def test_the_setting_counts_from_the_turn_it_is_changed_in(rig):
    agent = await make(rig, message_buffer_autoclear=False)
    await rig.say(agent.id, "one")
    rig.model.hold = asyncio.Event()
    turn = await begin(rig, agent.id, "two")
    await until(lambda: _asked(rig, 2))
    await rig.kelpie.api().agents.update(agent.id, {"message_buffer_autoclear": True})
    rig.model.hold.set()
    async for _ in turn.events():
        pass
    assert await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "three")
    assert said(rig.model.requests[-1]) == [(Role.user, "three")]
    await rig.kelpie.api().agents.update(agent.id, {"message_buffer_autoclear": False})
    await rig.say(agent.id, "four")
    await rig.say(agent.id, "five")
    users = [text for role, text in said(rig.model.requests[-1]) if role is Role.user]
    assert users == ["four", "five"]


async def test_cut_off_in_the_middle_the_turn_goes_on_with_what_it_had_and_is_cleared_at_its_end(rig):
    agent = await make(rig, tools=("archival_memory_insert",))
    await rig.say(agent.id, "before")

    def first_step(request):
        rig.model.hold = asyncio.Event()  # the second model call never comes back
        return says("", NOTE)

    rig.model.script = [first_step]
    await behind(rig, agent.id, "one")
    await until(lambda: _asked(rig, 3))
    assert await context(rig, agent) == [Role.system, Role.user, Role.assistant, Role.tool]
    await rig.stop()
    rig.model.hold, rig.model.script = None, [says("done")]
    await rig.start()
    await until(lambda: _all_over(rig))
    assert [role for role, _ in said(rig.model.requests[-1])] == [Role.user, Role.assistant, Role.tool]
    assert await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "two")
    assert said(rig.model.requests[-1]) == [(Role.user, "two")]


async def _asked(rig, times):
    return len(rig.model.requests) == times


async def _all_over(rig):
    runs = await rig.kelpie.api().runs.page(RunQuery())
    return all(run.status is RunStatus.completed for run in runs)


@pytest.mark.parametrize("happened", [True, False], ids=["it was in", "it was lost"])
async def test_when_the_outcome_of_the_last_commit_is_unknown(rig, monkeypatch, happened):
    agent = await make(rig)
    await rig.say(agent.id, "before")
    database = rig.kelpie.world.database
    real, left = database.transact, [1]

    async def transact(fn):
        if left[0] and _kind(fn) == "step":
            left[0] -= 1
            if happened:
                await real(fn)
            raise CommitUnknown("who knows")
        return await real(fn)

    monkeypatch.setattr(database, "transact", transact)
    rig.model.script = [says("one done")]
    assert rows(await rig.say(agent.id, "one"))[-1].text == "one done"
    assert left == [0] and await context(rig, agent) == [Role.system]
    await rig.say(agent.id, "two")
    assert said(rig.model.requests[-1]) == [(Role.user, "two")]


async def test_when_the_last_commit_fails_nothing_of_it_is_done(rig, monkeypatch):
    agent = await make(rig, tools=("archival_memory_insert",))
    database = rig.kelpie.world.database
    real, steps = database.transact, []

    async def transact(fn):
        if _kind(fn) == "step":
            steps.append(fn)
            if len(steps) == 2:
                raise StorageError("the disk is gone")
        return await real(fn)

    monkeypatch.setattr(database, "transact", transact)
    rig.model.script = [says("", NOTE), says("never committed")]
    assert isinstance(ended(await rig.say(agent.id, "one")).error, StorageError)
    rig.model.script = [says("two done")]
    await rig.say(agent.id, "two")
    assert said(rig.model.requests[-1]) == [(Role.user, "two")], "the turn was closed, and that cleared it"
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.text for m in history if m.role is Role.user] == ["one", "two"]
    assert "never committed" not in [m.text for m in history]


def _kind(fn):
    """The kind of a journal commit, which is a text in the closure of its function."""
    cells = fn.__closure__ or ()
    return next((c.cell_contents for c in cells if c.cell_contents in ("open", "step", "close")), None)
