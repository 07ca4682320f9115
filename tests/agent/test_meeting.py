"""Groups that are spoken to: who is given the word, what each hears, and what happens when one fails."""

import asyncio
from types import SimpleNamespace

import pytest

from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.agent.multi_agent.group_chat import ChatEnded, Listener, MemberEvent, MemberFailed
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.multi_agent.speaker_selection import named
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import ToolRule
from kelpie.core.agents.groups import Group, Manager, ManagerType, NewGroup
from kelpie.core.conversations.messages import MessageQuery, NewMessage, Role, Text, Usage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import Conflict, ModelError, ModelFault, Overloaded
from kelpie.core.ids import GroupId
from tests.agent.conftest import says
from tests.agent.multi_agent_rig import MultiAgentRig

DOWN = ModelError(ModelFault.bad_request, "Down.")


@pytest.fixture
async def rig(tmp_path):
    made = await MultiAgentRig(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


def groups(rig):
    return rig.kelpie.api().groups


async def group_of(rig, members, kind=ManagerType.round_robin, **manager):
    return await groups(rig).create(NewGroup(tuple(members), "Makers", Manager(kind, **manager)))


async def meet(rig, group, text="Build it"):
    ear = await groups(rig).send(group.id, SendRequest((NewMessage(Role.user, (Text(text),)),)))
    async with asyncio.timeout(20):
        return [event async for event in ear.events()]


def said(events):
    return [
        (e.member.name, e.event.message.text)
        for e in events
        if isinstance(e, MemberEvent)
        and isinstance(e.event, MessageCommitted)
        and e.event.message.role is Role.assistant
    ]


async def test_everyone_speaks_once_and_hears_the_others(rig):
    ann, ben = await rig.agent("Ann", says("A1")), await rig.agent("Ben", says("B1"))
    group = await group_of(rig, (ann, ben))
    events = await meet(rig, group)
    assert said(events) == [("Ann", "A1"), ("Ben", "B1")]
    end = events[-1]
    assert (end.stop_reason, end.step_count, end.usage.total_tokens, end.error) == (StopReason.end_turn, 2, 30, None)
    assert rig.heard(ben) == ["Build it", "[Ann says:]\nA1"]
    rows = (await rig.kelpie.api().histories.messages(ben, MessageQuery()))[1:]
    assert all(row.group_id == group.id for row in rows)
    assert [(row.role.value, row.sender_id) for row in rows] == [("user", None), ("user", ann), ("assistant", ben)]


async def test_max_turns_bounds_the_rounds(rig):
    ann, ben = await rig.agent("Ann", says("A1"), says("A2")), await rig.agent("Ben", says("B1"))
    group = await group_of(rig, (ann, ben), max_turns=3)
    assert said(await meet(rig, group)) == [("Ann", "A1"), ("Ben", "B1"), ("Ann", "A2")]
    assert rig.heard(ann) == ["Build it", "[Ben says:]\nB1"]  # not its own words a second time


async def test_a_group_of_one_does_not_talk_to_itself(rig):
    ann = await rig.agent("Ann", says("A1"), says("A2"))
    group = await group_of(rig, (ann,), max_turns=5)
    assert said(await meet(rig, group)) == [("Ann", "A1")]


async def test_one_that_fails_is_told_and_the_rest_go_on(rig):
    ann, ben, cid = await rig.agent("Ann", DOWN), await rig.agent("Ben", says("B")), await rig.agent("Cid")
    await rig.kelpie.api().agents.stop(cid)
    events = await meet(rig, await group_of(rig, (ann, ben, cid)))
    assert said(events) == [("Ben", "B")] and events[-1].error is None
    assert [e.member.name for e in events if isinstance(e, MemberFailed)] == ["Ann", "Cid"]
    assert rig.heard(ben) == ["Build it", "[Ann could not answer.]"]


async def test_when_all_fail_the_meeting_has(rig):
    ann = await rig.agent("Ann", DOWN)
    end = (await meet(rig, await group_of(rig, (ann,))))[-1]
    assert isinstance(end, ChatEnded) and end.stop_reason is StopReason.error and str(end.error) == str(DOWN)


async def test_a_supervisor_tells_all_and_sums_up(rig):
    boss = await rig.agent("Boss", says("Do your part."), says("All done."))
    ann, ben = await rig.agent("Ann", says("A")), await rig.agent("Ben", says("B"))
    group = await group_of(rig, (ann, ben), ManagerType.supervisor, agent_id=boss)
    events = await meet(rig, group)
    spoken = said(events)
    assert spoken[0] == ("Boss", "Do your part.") and spoken[-1] == ("Boss", "All done.")
    assert sorted(spoken[1:3]) == [("Ann", "A"), ("Ben", "B")]
    assert rig.heard(ann)[:2] == ["Build it", "[Boss says:]\nDo your part."]
    heard = rig.heard(boss)
    assert ann in heard[0] and "Makers" in heard[0] and heard[1] == "Build it"
    assert {"[Ann says:]\nA", "[Ben says:]\nB"} <= set(heard[2:])


async def test_a_leader_that_fails_ends_it(rig):
    boss, ann = await rig.agent("Boss", DOWN), await rig.agent("Ann")
    for kind in (ManagerType.supervisor, ManagerType.dynamic):
        rig.script(boss, DOWN)
        events = await meet(rig, await group_of(rig, (ann,), kind, agent_id=boss))
        assert said(events) == [] and str(events[-1].error) == str(DOWN)


async def test_a_leader_names_who_is_next_until_it_is_done(rig):
    boss = await rig.agent("Boss", says("Ben"), says("Now Ann, please."), says("END"))
    ann, ben = await rig.agent("Ann", says("A")), await rig.agent("Ben", says("B"))
    group = await group_of(rig, (ann, ben), ManagerType.dynamic, agent_id=boss, termination_token="END")
    events = await meet(rig, group)
    assert [who for who, _ in said(events)] == ["Boss", "Ben", "Boss", "Ann", "Boss"]
    assert events[-1].stop_reason is StopReason.end_turn
    assert rig.heard(ann) == ["Build it", "[Ben says:]\nB"]  # who was chosen is between leader and group


async def test_a_leader_that_names_nobody_is_asked_once_more(rig):
    boss, ann = await rig.agent("Boss", says("Zoe"), says("Yan")), await rig.agent("Ann")
    events = await meet(rig, await group_of(rig, (ann,), ManagerType.dynamic, agent_id=boss))
    assert [who for who, _ in said(events)] == ["Boss", "Boss"] and events[-1].stop_reason is StopReason.max_steps
    assert "not the name of a group member" in rig.heard(boss)[-1]


async def test_the_turns_of_a_dynamic_group_are_bounded(rig):
    boss = await rig.agent("Boss", *[says("Ann")] * 9)
    ann = await rig.agent("Ann", *[says("A")] * 9)
    events = await meet(rig, await group_of(rig, (ann,), ManagerType.dynamic, agent_id=boss, max_turns=2))
    assert len(said(events)) == 4 and events[-1].stop_reason is StopReason.max_steps


async def test_a_sleeptime_group_is_spoken_to_through_its_main_agent(rig):
    main, aide = await rig.agent("Main", says("hello")), await rig.agent("Aide")
    group = await group_of(rig, (aide,), ManagerType.sleeptime, agent_id=main)
    assert said(await meet(rig, group)) == [("Main", "hello")]


async def test_a_group_meets_one_message_at_a_time(rig):
    ann = await rig.agent("Ann")
    gate = rig.model.gate(ann)
    group = await group_of(rig, (ann,))
    ear = await groups(rig).send(group.id, SendRequest((NewMessage(Role.user, (Text("one"),)),)))
    await rig.model.waiting[ann].wait()
    with pytest.raises(Conflict):
        await groups(rig).send(group.id, SendRequest((NewMessage(Role.user, (Text("two"),)),)))
    gate.set()
    async with asyncio.timeout(20):
        assert isinstance([event async for event in ear.events()][-1], ChatEnded)
    assert said(await meet(rig, group, "three")) == [("Ann", "ok")]


async def test_an_empty_group_and_one_without_a_leader_are_refused(rig):
    with pytest.raises(Conflict):
        await meet(rig, await group_of(rig, ()))
    ann = await rig.agent("Ann")
    assert isinstance((await meet(rig, await group_of(rig, (ann,), ManagerType.dynamic)))[-1].error, Conflict)


def test_a_member_is_found_by_id_or_name():
    class Member:
        def __init__(self, agent_id, name):
            self.id, self.name = agent_id, name

    ann, anna = Member("agent-1", "Ann"), Member("agent-2", "Anna Lee")
    assert named("anna lee", (ann, anna)) is anna
    assert named("I choose agent-1, not Anna Lee", (ann, anna)) is ann
    assert named("nobody", (ann, anna)) is None


async def test_a_long_answer_is_cut_for_the_others(rig, monkeypatch):
    monkeypatch.setattr("kelpie.agent.multi_agent.group_chat.WORDS_MAX", 5)
    ann, ben = await rig.agent("Ann", says("0123456789")), await rig.agent("Ben", says("B1"))
    events = await meet(rig, await group_of(rig, (ann, ben)))
    assert rig.heard(ben)[-1] == "[Ann says:]\n01234" and said(events)[0] == ("Ann", "0123456789")


async def test_a_client_that_does_not_read_is_told_so_and_nothing_more(monkeypatch):
    monkeypatch.setattr("kelpie.agent.multi_agent.group_chat.EVENTS_MAX", 2)
    listener = Listener(GroupId("group-00000000-0000-4000-8000-000000000001"))
    for _ in range(3):
        listener.emit(MemberFailed(None, DOWN))
    listener.emit(ChatEnded(StopReason.end_turn, Usage(), 0))
    (end,) = [event async for event in listener.events()]
    assert isinstance(end, ChatEnded) and end.stop_reason is StopReason.error and "too slowly" in str(end.error)


@pytest.mark.parametrize("kind", [ManagerType.round_robin, ManagerType.supervisor])
async def test_a_member_that_waits_for_approval_ends_the_chat(rig, kind):
    search, rules = ("conversation_search", {"query": "x"}), (ToolRule("requires_approval", "conversation_search"),)
    ann = await rig.agent("Ann", says("", search), include_base_tools=True, tool_rules=rules)
    ben = await rig.agent("Ben", says("B1"))
    if kind is ManagerType.round_robin:
        group = await group_of(rig, (ann, ben))
    else:
        group = await group_of(rig, (ben,), kind, agent_id=ann)
    events = await meet(rig, group)
    assert events[-1].stop_reason is StopReason.requires_approval and events[-1].error is None
    assert not [request for request in rig.model.requests if request.user == ben], "nobody else is asked"


class _Held:
    """Sends to nobody: a turn that never begins, or an error."""

    def __init__(self, error=None) -> None:
        self.error, self.asked = error, asyncio.Event()

    async def send(self, agent_id, send):
        self.asked.set()
        if self.error:
            raise self.error
        await asyncio.Event().wait()


def _begun(chats, number, sending):
    group_id = GroupId(f"group-00000000-0000-4000-8000-00000000000{number}")
    group = Group(group_id, "", Manager(ManagerType.round_robin), (), 0, 0)
    member = SimpleNamespace(id=f"agent-{number}", name="Ann")
    return chats.begin(sending, group, (member,), None, SendRequest((NewMessage(Role.user, (Text("hi"),)),)))


async def _end(listener):
    async with asyncio.timeout(20):
        return [event async for event in listener.events()][-1]


async def test_a_chat_that_the_server_ends_tells_its_client_and_leaves_its_place():
    chats, held = RunningChats(), _Held()
    listener = _begun(chats, 1, held)
    await held.asked.wait()
    await chats.close()
    end = await _end(listener)
    assert end.stop_reason is StopReason.error and end.error.error_code == "agents_stopping"
    _begun(chats, 1, _Held())
    await chats.close()


async def test_chats_at_the_same_time_are_bounded_and_places_come_back(monkeypatch):
    monkeypatch.setattr("kelpie.agent.multi_agent.running_chats.MEETINGS_MAX", 2)
    chats, broken = RunningChats(), _Held(ValueError("a bug"))
    first, _ = _begun(chats, 1, broken), _begun(chats, 2, _Held())
    with pytest.raises(Overloaded) as refused:
        _begun(chats, 3, _Held())
    assert refused.value.error_code == "group_chats_full"
    end = await _end(first)
    assert end.stop_reason is StopReason.error and "a bug" in str(end.error)
    await asyncio.sleep(0)
    _begun(chats, 3, _Held())
    with pytest.raises(Overloaded):
        _begun(chats, 1, _Held())
    await chats.close()
