"""Companions: made with the agent they work for, sharing its blocks, given work by the count of its turns."""

import asyncio
from dataclasses import replace

import pytest

from kelpie.agent.definition.creation import NAME_CHARS_MAX
from kelpie.agent.events.turn_events import TurnEnded
from kelpie.core.agents.agent import AgentType, NewAgent
from kelpie.core.agents.groups import GroupQuery, ManagerType, NewGroup
from kelpie.core.conversations.agent_chain import HOPS_MAX, AgentChain
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus
from kelpie.core.errors import NotFound
from kelpie.core.memory.blocks import NewBlock
from tests.agent.conftest import says
from tests.agent.multi_agent_rig import MultiAgentRig

BLOCKS = (NewBlock("human", "Name: Bob"), NewBlock("persona", "I help."))
FINISH = says("", ("memory_finish_edits", {}))


@pytest.fixture
async def rig(tmp_path):
    made = await MultiAgentRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


def groups(rig):
    return rig.kelpie.api().groups


async def sleepy(rig, every=None, **fields):
    fields = {"name": "Sleepy", "memory_blocks": BLOCKS, "enable_sleeptime": True, **fields}
    view = await rig.kelpie.api().agents.create(NewAgent(**fields))
    group = view.managed_group
    if every is not None:
        await groups(rig).update(group.id, {"manager": {"sleeptime_agent_frequency": every}})
    return view.agent.id, group.agent_ids[0], group.id


async def runs_of(rig, agent_id):
    return (await rig.kelpie.api().runs.page(RunQuery(agent_ids=(agent_id,))))[::-1]


async def settled(rig, agent_id, count):
    """The runs of an agent once there are so many and all have ended."""
    async with asyncio.timeout(20):
        while True:
            found = await runs_of(rig, agent_id)
            if len(found) >= count and all(r.status not in (RunStatus.created, RunStatus.running) for r in found):
                return found
            await asyncio.sleep(0.01)


def ended(events) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


async def test_a_companion_is_made_with_its_agent(rig):
    main, aide, group_id = await sleepy(rig)
    view, companion = await rig.kelpie.api().agents.get(main), await rig.kelpie.api().agents.get(aide)
    assert sorted(t.name for t in view.tools) == ["archival_memory_search", "conversation_search", "send_message"]
    rules = {(r.type, r.tool_name) for r in view.agent.tool_rules}
    assert ("exit_loop", "send_message") in rules and ("continue_loop", "conversation_search") in rules
    assert companion.agent.name == "Sleepy-sleeptime" and companion.agent.agent_type is AgentType.sleeptime_agent
    assert companion.agent.model == replace(view.agent.model, inner_thoughts=False)
    assert [b.id for b in companion.blocks][:2] == [b.id for b in view.blocks]
    assert [b.label for b in companion.blocks] == ["human", "persona", "memory_persona"]
    group = await groups(rig).get(group_id)
    assert group.manager.type is ManagerType.sleeptime and group.manager.agent_id == main
    assert (group.manager.sleeptime_agent_frequency, group.turns_counter) == (5, -1)
    assert view.managed_group == group
    (system,) = await rig.kelpie.api().histories.messages(aide, MessageQuery())
    assert system.role is Role.system and "memory_persona" in system.text and "Name: Bob" in system.text


async def test_one_that_speaks_by_voice_has_its_own_kind(rig):
    main, aide, group_id = await sleepy(rig, agent_type=AgentType.voice_convo_agent)
    assert (await rig.kelpie.api().agents.get(aide)).agent.agent_type is AgentType.voice_sleeptime_agent
    manager = (await groups(rig).get(group_id)).manager
    assert manager.type is ManagerType.voice_sleeptime
    assert (manager.max_message_buffer_length, manager.min_message_buffer_length) == (30, 15)
    assert sorted(t.name for t in (await rig.kelpie.api().agents.get(main)).tools) == [
        "search_memory",
        "send_message",
    ]


async def test_switching_it_on_later_makes_one_and_only_one(rig):
    made = await rig.kelpie.api().agents.create(NewAgent(name="Later", memory_blocks=BLOCKS))
    tools = [t.name for t in made.tools]
    view = await rig.kelpie.api().agents.update(made.agent.id, {"enable_sleeptime": True})
    assert view.managed_group is not None and [t.name for t in view.tools] == tools
    off = await rig.kelpie.api().agents.update(made.agent.id, {"enable_sleeptime": False})
    assert off.agent.enable_sleeptime is False and off.managed_group == view.managed_group
    again = await rig.kelpie.api().agents.update(made.agent.id, {"enable_sleeptime": True})
    assert again.managed_group == view.managed_group
    assert await rig.kelpie.api().agents.count() == 2


async def test_the_longest_name_leaves_room_for_that_of_the_companion(rig):
    _, aide, _ = await sleepy(rig, name="n" * NAME_CHARS_MAX)
    name = (await rig.kelpie.api().agents.get(aide)).agent.name
    assert len(name) == NAME_CHARS_MAX and name.endswith("n-sleeptime")


async def test_it_goes_with_its_agent_but_not_when_it_has_other_work(rig):
    main, aide, group_id = await sleepy(rig)
    await rig.kelpie.api().agents.delete(main)
    with pytest.raises(NotFound):
        await rig.kelpie.api().agents.get(aide)
    with pytest.raises(NotFound):
        await groups(rig).get(group_id)
    main, aide, _ = await sleepy(rig)
    other = (await rig.kelpie.api().agents.create(NewAgent(name="Other"))).agent.id
    second = await groups(rig).create(NewGroup((aide, other), "also"))
    await rig.kelpie.api().agents.delete(main)
    assert (await rig.kelpie.api().agents.get(aide)).agent.id == aide
    assert [g.id for g in await groups(rig).page(GroupQuery())] == [second.id]


async def test_a_block_that_comes_later_is_shared_too(rig):
    main, aide, _ = await sleepy(rig)
    doors = rig.kelpie.api()
    block = await doors.blocks.create(NewBlock("project", "Build it"))
    await doors.blocks.attach(main, block.id)
    assert block.id in [b.id for b in (await rig.kelpie.api().agents.get(aide)).blocks]
    clash = await doors.blocks.create(NewBlock("memory_persona", "mine"))
    await doors.blocks.attach(main, clash.id)
    assert clash.id not in [b.id for b in (await rig.kelpie.api().agents.get(aide)).blocks]


async def test_a_companion_that_was_deleted_is_replaced_when_asked_for(rig):
    main, aide, group_id = await sleepy(rig)
    await rig.kelpie.api().agents.delete(aide)
    assert ended(await rig.say(main, "hello")).run_ids == ()
    view = await rig.kelpie.api().agents.update(main, {"enable_sleeptime": True})
    assert view.managed_group.id == group_id and len(view.managed_group.agent_ids) == 1


async def test_turns_are_counted_and_every_nth_gives_it_work(rig):
    main, aide, group_id = await sleepy(rig, every=2)
    rig.script(main, *[says("", ("send_message", {"message": f"m{i}"})) for i in range(4)])
    rig.script(aide, FINISH, FINISH)
    ends = [ended(await rig.say(main, f"turn {i}")) for i in range(4)]
    assert [len(end.run_ids) for end in ends] == [1, 0, 1, 0]
    found = await settled(rig, aide, 2)
    assert [run.id for run in found] == [ends[0].run_ids[0], ends[2].run_ids[0]]
    assert {run.metadata["run_type"] for run in found} == {"sleeptime_agent_send_message_async"}
    assert all(run.status is RunStatus.completed for run in found)
    said = [m.text for m in await rig.kelpie.api().histories.messages(aide, MessageQuery()) if m.role is Role.user]
    assert [text.partition("\n\n")[2] for text in said] == [
        "user: turn 0\nassistant: m0",
        "user: turn 1\nassistant: m1\nuser: turn 2\nassistant: m2",
    ]
    assert main in said[0]
    group = await groups(rig).get(group_id)
    rows = await rig.kelpie.api().histories.messages(main, MessageQuery())
    third = next(i for i, row in enumerate(rows) if row.text == "turn 3")
    assert (group.turns_counter, group.last_processed_message_id) == (1, rows[third - 1].id)
    inputs = [row.text for row in await groups(rig).messages(group_id, MessageQuery())]
    assert inputs == ["turn 0", "turn 1", "turn 2", "turn 3"]


async def test_what_it_writes_is_in_its_agents_next_prompt(rig):
    main, aide, _ = await sleepy(rig, every=1)
    edit = ("memory_insert", {"label": "human", "new_string": "Likes tea."})
    rig.script(aide, says("", edit), FINISH)
    await rig.say(main, "I like tea.")
    await settled(rig, aide, 1)
    await rig.say(main, "What do I like?")
    asked = [r for r in rig.model.requests if r.user == main]
    assert "Likes tea." not in asked[0].system and "Likes tea." in asked[-1].system


async def test_nothing_follows_when_it_is_switched_off_or_the_companion_stopped(rig):
    main, aide, _ = await sleepy(rig, every=1)
    await rig.kelpie.api().agents.update(main, {"enable_sleeptime": False})
    assert ended(await rig.say(main, "hello")).run_ids == ()
    await rig.kelpie.api().agents.update(main, {"enable_sleeptime": True})
    await rig.kelpie.api().agents.stop(aide)
    assert ended(await rig.say(main, "hello")).run_ids == ()
    await rig.kelpie.api().agents.start(aide)
    rig.script(aide, FINISH)
    (run_id,) = ended(await rig.say(main, "now")).run_ids
    (run,) = await settled(rig, aide, 1)
    assert run.id == run_id


async def test_while_an_agent_is_paused_nothing_follows(rig):
    main, aide, _ = await sleepy(rig, every=1, agent_type=AgentType.memgpt_agent, tools=("pause_heartbeats",))
    pause = says("", ("pause_heartbeats", {"minutes": 5}))
    rig.script(main, pause, *[says("", ("send_message", {"message": "hi"}))] * 2)
    for text in ("Rest.", "Still there?"):
        assert ended(await rig.say(main, text)).run_ids == ()
    assert await runs_of(rig, aide) == []


async def test_companions_of_each_other_do_not_go_on_for_ever(rig):
    main, _, _ = await sleepy(rig, every=1)
    assert ended(await rig.say(main, "hello", chain=AgentChain((), HOPS_MAX))).run_ids == ()


async def test_what_a_voice_loses_sight_of_is_given_to_its_companion(rig):
    main, aide, group_id = await sleepy(rig, agent_type=AgentType.voice_convo_agent)
    update = {"manager": {"max_message_buffer_length": 6, "min_message_buffer_length": 3}}
    await groups(rig).update(group_id, update)
    rig.script(main, *[says("", ("send_message", {"message": f"m{i}"})) for i in range(4)])
    ends = [ended(await rig.say(main, f"turn {i}")) for i in range(2)]
    assert [len(end.run_ids) for end in ends] == [0, 1]  # the greeting it began with counts as well
    await settled(rig, aide, 1)
    said = [m.text for m in await rig.kelpie.api().histories.messages(aide, MessageQuery()) if m.role is Role.user]
    assert "(0) assistant: " in said[0]
    await rig.say(main, "turn 2")
    shown = [r for r in rig.model.requests if r.user == main][-1].messages
    assert "turn 2" in shown[-1].message.text and len(shown) <= 7
    assert len(await rig.kelpie.api().histories.messages(main, MessageQuery())) == 1 + 3 + 9
