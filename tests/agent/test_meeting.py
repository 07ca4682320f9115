"""Groups that are spoken to: who is given the word, what each hears, and what happens when one fails."""

import asyncio

import pytest

from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.agent.multi_agent.group_chat import Ended, Failed, Spoke
from kelpie.agent.multi_agent.speaker_selection import named
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.groups import Manager, ManagerType, NewGroup
from kelpie.core.conversations.messages import MessageQuery, NewMessage, Role, Text
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict, ModelError, ModelFault
from tests.agent.agents_house import AgentsHouse
from tests.agent.conftest import says

DOWN = ModelError(ModelFault.bad_request, "Down.")


@pytest.fixture
async def house(tmp_path):
    made = await AgentsHouse(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


def groups(house):
    return house.kelpie.api().groups


async def group_of(house, members, kind=ManagerType.round_robin, **manager):
    return await groups(house).create(NewGroup(tuple(members), "Makers", Manager(kind, **manager)))


async def meet(house, group, text="Build it"):
    ear = await groups(house).send(group.id, SendRequest((NewMessage(Role.user, (Text(text),)),)))
    async with asyncio.timeout(20):
        return [event async for event in ear.events()]


def said(events):
    return [
        (e.member.name, e.event.message.text)
        for e in events
        if isinstance(e, Spoke) and isinstance(e.event, MessageCommitted) and e.event.message.role is Role.assistant
    ]


async def test_everyone_speaks_once_and_hears_the_others(house):
    ann, ben = await house.agent("Ann", says("A1")), await house.agent("Ben", says("B1"))
    group = await group_of(house, (ann, ben))
    events = await meet(house, group)
    assert said(events) == [("Ann", "A1"), ("Ben", "B1")]
    end = events[-1]
    assert (end.stop_reason, end.step_count, end.usage.total_tokens, end.error) == (StopReason.end_turn, 2, 30, None)
    assert house.heard(ben) == ["Build it", "[Ann says:]\nA1"]
    rows = (await house.kelpie.api().histories.messages(ben, MessageQuery()))[1:]
    assert all(row.group_id == group.id for row in rows)
    assert [(row.role.value, row.sender_id) for row in rows] == [("user", None), ("user", ann), ("assistant", ben)]


async def test_max_turns_bounds_the_rounds(house):
    ann, ben = await house.agent("Ann", says("A1"), says("A2")), await house.agent("Ben", says("B1"))
    group = await group_of(house, (ann, ben), max_turns=3)
    assert said(await meet(house, group)) == [("Ann", "A1"), ("Ben", "B1"), ("Ann", "A2")]
    assert house.heard(ann) == ["Build it", "[Ben says:]\nB1"]  # not its own words a second time


async def test_a_group_of_one_does_not_talk_to_itself(house):
    ann = await house.agent("Ann", says("A1"), says("A2"))
    group = await group_of(house, (ann,), max_turns=5)
    assert said(await meet(house, group)) == [("Ann", "A1")]


async def test_one_that_fails_is_told_and_the_rest_go_on(house):
    ann, ben, cid = await house.agent("Ann", DOWN), await house.agent("Ben", says("B")), await house.agent("Cid")
    await house.kelpie.api().agents.stop(cid)
    events = await meet(house, await group_of(house, (ann, ben, cid)))
    assert said(events) == [("Ben", "B")] and events[-1].error is None
    assert [e.member.name for e in events if isinstance(e, Failed)] == ["Ann", "Cid"]
    assert house.heard(ben) == ["Build it", "[Ann could not answer.]"]


async def test_when_all_fail_the_meeting_has(house):
    ann = await house.agent("Ann", DOWN)
    end = (await meet(house, await group_of(house, (ann,))))[-1]
    assert isinstance(end, Ended) and end.stop_reason is StopReason.error and str(end.error) == str(DOWN)


async def test_a_supervisor_tells_all_and_sums_up(house):
    boss = await house.agent("Boss", says("Do your part."), says("All done."))
    ann, ben = await house.agent("Ann", says("A")), await house.agent("Ben", says("B"))
    group = await group_of(house, (ann, ben), ManagerType.supervisor, agent_id=boss)
    events = await meet(house, group)
    spoken = said(events)
    assert spoken[0] == ("Boss", "Do your part.") and spoken[-1] == ("Boss", "All done.")
    assert sorted(spoken[1:3]) == [("Ann", "A"), ("Ben", "B")]
    assert house.heard(ann)[:2] == ["Build it", "[Boss says:]\nDo your part."]
    heard = house.heard(boss)
    assert ann in heard[0] and "Makers" in heard[0] and heard[1] == "Build it"
    assert {"[Ann says:]\nA", "[Ben says:]\nB"} <= set(heard[2:])


async def test_a_leader_that_fails_ends_it(house):
    boss, ann = await house.agent("Boss", DOWN), await house.agent("Ann")
    for kind in (ManagerType.supervisor, ManagerType.dynamic):
        house.script(boss, DOWN)
        events = await meet(house, await group_of(house, (ann,), kind, agent_id=boss))
        assert said(events) == [] and str(events[-1].error) == str(DOWN)


async def test_a_leader_names_who_is_next_until_it_is_done(house):
    boss = await house.agent("Boss", says("Ben"), says("Now Ann, please."), says("END"))
    ann, ben = await house.agent("Ann", says("A")), await house.agent("Ben", says("B"))
    group = await group_of(house, (ann, ben), ManagerType.dynamic, agent_id=boss, termination_token="END")
    events = await meet(house, group)
    assert [who for who, _ in said(events)] == ["Boss", "Ben", "Boss", "Ann", "Boss"]
    assert events[-1].stop_reason is StopReason.end_turn
    assert house.heard(ann) == ["Build it", "[Ben says:]\nB"]  # who was chosen is between leader and group


async def test_a_leader_that_names_nobody_is_asked_once_more(house):
    boss, ann = await house.agent("Boss", says("Zoe"), says("Yan")), await house.agent("Ann")
    events = await meet(house, await group_of(house, (ann,), ManagerType.dynamic, agent_id=boss))
    assert [who for who, _ in said(events)] == ["Boss", "Boss"] and events[-1].stop_reason is StopReason.max_steps
    assert "not the name of a group member" in house.heard(boss)[-1]


async def test_the_turns_of_a_dynamic_group_are_bounded(house):
    boss = await house.agent("Boss", *[says("Ann")] * 9)
    ann = await house.agent("Ann", *[says("A")] * 9)
    events = await meet(house, await group_of(house, (ann,), ManagerType.dynamic, agent_id=boss, max_turns=2))
    assert len(said(events)) == 4 and events[-1].stop_reason is StopReason.max_steps


async def test_a_sleeptime_group_is_spoken_to_through_its_main_agent(house):
    main, aide = await house.agent("Main", says("hello")), await house.agent("Aide")
    group = await group_of(house, (aide,), ManagerType.sleeptime, agent_id=main)
    assert said(await meet(house, group)) == [("Main", "hello")]


async def test_a_group_meets_one_message_at_a_time(house):
    ann = await house.agent("Ann")
    gate = house.model.gate(ann)
    group = await group_of(house, (ann,))
    ear = await groups(house).send(group.id, SendRequest((NewMessage(Role.user, (Text("one"),)),)))
    await house.model.waiting[ann].wait()
    with pytest.raises(Conflict):
        await groups(house).send(group.id, SendRequest((NewMessage(Role.user, (Text("two"),)),)))
    gate.set()
    async with asyncio.timeout(20):
        assert isinstance([event async for event in ear.events()][-1], Ended)
    assert said(await meet(house, group, "three")) == [("Ann", "ok")]


async def test_an_empty_group_and_one_without_a_leader_are_refused(house):
    with pytest.raises(Conflict):
        await meet(house, await group_of(house, ()))
    ann = await house.agent("Ann")
    assert isinstance((await meet(house, await group_of(house, (ann,), ManagerType.dynamic)))[-1].error, Conflict)


def test_a_member_is_found_by_id_or_name():
    class Member:
        def __init__(self, agent_id, name):
            self.id, self.name = agent_id, name

    ann, anna = Member("agent-1", "Ann"), Member("agent-2", "Anna Lee")
    assert named("anna lee", (ann, anna)) is anna
    assert named("I choose agent-1, not Anna Lee", (ann, anna)) is ann
    assert named("nobody", (ann, anna)) is None
