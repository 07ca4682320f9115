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


async def make(house, agent_type=AgentType.letta_v1_agent, **fields):
    fields.setdefault("message_buffer_autoclear", True)
    fields.setdefault("memory_blocks", (NewBlock("human", "Name: Bob"),))
    return (await house.kelpie.api().agents.create(NewAgent(agent_type=agent_type, **fields))).agent


def said(request):
    return [(entry.message.role, entry.message.text) for entry in request.messages]


async def context(house, agent):
    ids = (await house.kelpie.api().agents.get(agent.id)).message_ids
    return [(await house.kelpie.api().histories.message(i)).role for i in ids]


async def test_a_turn_sees_itself_and_nothing_before_it(house):
    agent = await make(house)
    edit = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
    house.model.script = [says("", edit), says("one done"), says("two done")]
    await house.say(agent.id, "one")
    assert await context(house, agent) == [Role.system]
    await house.say(agent.id, "two")
    _, second, third = house.model.requests
    assert [role for role, _ in said(second)] == [Role.user, Role.assistant, Role.tool]
    assert said(third) == [(Role.user, "two")]
    assert "Likes tea" in third.system, "blocks are not part of what is cleared"
    history = await house.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.text for m in history if m.role is Role.user] == ["one", "two"], "the history keeps everything"
    await house.stop()
    await house.start()
    await house.say(agent.id, "three")
    assert said(house.model.requests[-1]) == [(Role.user, "three")]


async def test_a_workflow_is_cleared_although_its_maker_said_no(house):
    agent = await make(
        house,
        AgentType.workflow_agent,
        message_buffer_autoclear=False,
        tools=("archival_memory_insert",),
        include_base_tool_rules=False,
    )
    house.model.script = [says("", NOTE), says("", ("archival_memory_insert", {"content": "y"}))]
    events = await house.say(agent.id, "do it")
    assert ended(events).stop_reason is StopReason.end_turn and len(house.model.requests) == 2
    assert house.model.requests[0].tool_choice == "required"
    assert await context(house, agent) == [Role.system]
    await house.say(agent.id, "again")
    assert said(house.model.requests[-1]) == [(Role.user, "again")]


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_turn_that_fails_is_cleared_too(house, steps_before):
    agent = await make(house, tools=("archival_memory_insert",))
    house.model.script = [says("", NOTE)] * steps_before + [ModelError(ModelFault.server, "down")]
    assert ended(await house.say(agent.id, "one")).stop_reason is StopReason.llm_api_error
    assert await context(house, agent) == [Role.system]
    await house.say(agent.id, "two")
    assert said(house.model.requests[-1]) == [(Role.user, "two")]


async def test_the_setting_counts_from_the_turn_it_is_changed_in(house):
    agent = await make(house, message_buffer_autoclear=False)
    await house.say(agent.id, "one")
    house.model.hold = asyncio.Event()
    turn = await begin(house, agent.id, "two")
    await until(lambda: _asked(house, 2))
    await house.kelpie.api().agents.update(agent.id, {"message_buffer_autoclear": True})
    house.model.hold.set()
    async for _ in turn.events():
        pass
    assert await context(house, agent) == [Role.system]
    await house.say(agent.id, "three")
    assert said(house.model.requests[-1]) == [(Role.user, "three")]
    await house.kelpie.api().agents.update(agent.id, {"message_buffer_autoclear": False})
    await house.say(agent.id, "four")
    await house.say(agent.id, "five")
    users = [text for role, text in said(house.model.requests[-1]) if role is Role.user]
    assert users == ["four", "five"]


async def test_cut_off_in_the_middle_the_turn_goes_on_with_what_it_had_and_is_cleared_at_its_end(house):
    agent = await make(house, tools=("archival_memory_insert",))
    await house.say(agent.id, "before")

    def first_step(request):
        house.model.hold = asyncio.Event()  # the second model call never comes back
        return says("", NOTE)

    house.model.script = [first_step]
    await behind(house, agent.id, "one")
    await until(lambda: _asked(house, 3))
    assert await context(house, agent) == [Role.system, Role.user, Role.assistant, Role.tool]
    await house.stop()
    house.model.hold, house.model.script = None, [says("done")]
    await house.start()
    await until(lambda: _all_over(house))
    assert [role for role, _ in said(house.model.requests[-1])] == [Role.user, Role.assistant, Role.tool]
    assert await context(house, agent) == [Role.system]
    await house.say(agent.id, "two")
    assert said(house.model.requests[-1]) == [(Role.user, "two")]


async def _asked(house, times):
    return len(house.model.requests) == times


async def _all_over(house):
    runs = await house.kelpie.api().runs.page(RunQuery())
    return all(run.status is RunStatus.completed for run in runs)


@pytest.mark.parametrize("happened", [True, False], ids=["it was in", "it was lost"])
async def test_when_the_outcome_of_the_last_commit_is_unknown(house, monkeypatch, happened):
    agent = await make(house)
    await house.say(agent.id, "before")
    database = house.kelpie.world.database
    real, left = database.transact, [1]

    async def transact(fn):
        if left[0] and _kind(fn) == "step":
            left[0] -= 1
            if happened:
                await real(fn)
            raise CommitUnknown("who knows")
        return await real(fn)

    monkeypatch.setattr(database, "transact", transact)
    house.model.script = [says("one done")]
    assert rows(await house.say(agent.id, "one"))[-1].text == "one done"
    assert left == [0] and await context(house, agent) == [Role.system]
    await house.say(agent.id, "two")
    assert said(house.model.requests[-1]) == [(Role.user, "two")]


async def test_when_the_last_commit_fails_nothing_of_it_is_done(house, monkeypatch):
    agent = await make(house, tools=("archival_memory_insert",))
    database = house.kelpie.world.database
    real, steps = database.transact, []

    async def transact(fn):
        if _kind(fn) == "step":
            steps.append(fn)
            if len(steps) == 2:
                raise StorageError("the disk is gone")
        return await real(fn)

    monkeypatch.setattr(database, "transact", transact)
    house.model.script = [says("", NOTE), says("never committed")]
    assert isinstance(ended(await house.say(agent.id, "one")).error, StorageError)
    house.model.script = [says("two done")]
    await house.say(agent.id, "two")
    assert said(house.model.requests[-1]) == [(Role.user, "two")], "the turn was closed, and that cleared it"
    history = await house.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.text for m in history if m.role is Role.user] == ["one", "two"]
    assert "never committed" not in [m.text for m in history]


def _kind(fn):
    """The kind of a journal commit, which is a text in the closure of its function."""
    cells = fn.__closure__ or ()
    return next((c.cell_contents for c in cells if c.cell_contents in ("open", "step", "close")), None)
