"""Conversations as lanes of one live agent: what each sees, what it edits, and that none waits for another."""

import asyncio

import pytest

from kelpie.agent.live.live_agent import IDLE_LANES_MAX
from kelpie.core.agents.agent import NewAgent, ToolRule
from kelpie.core.conversations.conversations import NewConversation, ThreadQuery
from kelpie.core.conversations.messages import MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import ConversationBusy, NotFound
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.paging import Page
from kelpie.core.tools.tools import NewTool
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import House, ended, rows, says
from tests.agent.test_recovery import begin, until

WAIT_S = 60.0

TEA = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
PAGE = Page(descending=False)
OWN_HUMAN = NewConversation(isolated_labels=("human",))


async def make(house, **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Bob"), NewBlock("persona", "Kind")))
    return (await house.kelpie.api().agents.create(NewAgent(**fields))).agent


def threads(house):
    return house.kelpie.api().conversations


async def opened(house, agent, new=None):
    return (await threads(house).create(agent.id, new or NewConversation())).id


async def asked(house, times):
    async def so_often():
        return len(house.model.requests) >= times

    await until(so_often)


def heard(request):
    """What the model was shown of the conversation."""
    return [entry.message.text for entry in request.messages]


async def values(house, agent):
    return {block.label: block.value for block in await house.kelpie.api().blocks.of_agent(agent.id)}


async def test_what_is_said_in_one_conversation_does_not_show_in_another(house):
    agent = await make(house)
    one, other = await opened(house, agent), await opened(house, agent)
    await house.say(agent.id, "to all of you")
    await house.say(agent.id, "first here", conversation=one)
    await house.say(agent.id, "second here", conversation=one)
    await house.say(agent.id, "elsewhere", conversation=other)
    assert [heard(request) for request in house.model.requests] == [
        ["to all of you"],
        ["first here"],
        ["first here", "ok", "second here"],
        ["elsewhere"],
    ]
    kept = await threads(house).messages(one, ThreadQuery(descending=False))
    assert [message.text for message in kept[1:]] == ["first here", "ok", "second here", "ok"]
    assert {message.conversation_id for message in kept} == {one}
    await house.stop()
    await house.start()
    await house.say(agent.id, "after a night", conversation=one)
    assert heard(house.model.requests[-1]) == ["first here", "ok", "second here", "ok", "after a night"]


async def test_a_turn_in_a_conversation_leaves_its_marks(house):
    agent = await make(house)
    conversation = await opened(house, agent)
    events = await house.say(agent.id, "hello", conversation=conversation)
    (run,) = await house.kelpie.api().runs.page(RunQuery(conversation_id=conversation))
    assert run.id == ended(events).run_id and run.conversation_id == conversation
    found, context = await threads(house).get(conversation)
    assert found.last_message_at == found.updated_at == run.completed_at
    assert list(context[1:]) == [m.id for m in await house.kelpie.api().runs.messages(run.id, PAGE)]


async def test_a_conversation_edits_its_own_copy_and_the_others_see_the_agents(house):
    agent = await make(house)
    own, plain = await opened(house, agent, OWN_HUMAN), await opened(house, agent)
    for conversation in (own, plain):  # both are hot
        await house.say(agent.id, "hello", conversation=conversation)
    house.model.script = [says("", TEA), says("noted")]
    await house.say(agent.id, "I like tea", conversation=own)
    assert "Likes tea" in house.model.requests[-1].system
    assert (await values(house, agent))["human"] == "Bob"
    await house.say(agent.id, "and here?", conversation=plain)
    assert "Likes tea" not in house.model.requests[-1].system
    house.model.script = [says("", TEA), says("noted")]
    await house.say(agent.id, "tell everybody")
    await house.say(agent.id, "and now?", conversation=plain)
    assert "Likes tea" in house.model.requests[-1].system
    await house.kelpie.api().blocks.update_by_label(agent.id, "persona", {"value": "Stern"})
    await house.say(agent.id, "who are you?", conversation=own)
    assert "Stern" in house.model.requests[-1].system


async def test_an_edit_of_a_conversations_copy_from_outside_is_seen_by_its_next_step(house):
    agent = await make(house)
    conversation = await opened(house, agent, OWN_HUMAN)
    await house.say(agent.id, "hello", conversation=conversation)
    (copy,) = (await threads(house).get(conversation))[0].isolated_block_ids
    house.model.script = [says("", ("memory_insert", {"label": "persona", "new_string": "Brief"})), says("done")]
    house.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(house.say(agent.id, "note", conversation=conversation))
    await asked(house, 2)
    await house.kelpie.api().blocks.update(copy, {"value": "Ann"})
    house.model.hold.set()
    await turn
    assert "Ann" in house.model.requests[-1].system and "Bob" not in house.model.requests[-1].system
    await house.kelpie.api().blocks.delete(copy)
    await house.say(agent.id, "and now?", conversation=conversation)
    assert "Bob" in house.model.requests[-1].system


@pytest.mark.parametrize("command", ["delete", "rename"])
async def test_a_conversations_copy_keeps_its_name(house, command):
    agent = await make(house, tools=("memory",))
    conversation = await opened(house, agent, OWN_HUMAN)
    call = {"command": command, "path": "/memories/human", "old_path": "/memories/human", "new_path": "/memories/me"}
    house.model.script = [says("", ("memory", call)), says("well")]
    events = await house.say(agent.id, "away with it", conversation=conversation)
    (result,) = rows(events)[1].tool_returns
    assert not result.ok and "belongs to this conversation only" in result.text
    assert await values(house, agent) == {"human": "Bob", "persona": "Kind"}


async def test_a_conversation_thinks_with_its_own_model_and_a_change_counts_from_the_next_turn(house):
    agent = await make(house, model_settings={"temperature": 0.9})
    conversation = await opened(house, agent, NewConversation(model_settings={"temperature": 0.2}))
    await house.say(agent.id, "hello", conversation=conversation)
    await threads(house).update(conversation, {"model_settings": {"temperature": 0.4}, "context_window_limit": 9_000})
    await house.say(agent.id, "hello", conversation=conversation)
    await threads(house).update(conversation, {"model_settings": None})
    await house.say(agent.id, "hello", conversation=conversation)
    await house.say(agent.id, "hello")
    assert [request.temperature for request in house.model.requests] == [0.2, 0.4, 0.9, 0.9]


async def test_conversations_answer_at_the_same_time_and_a_slow_one_holds_nobody(house):
    agent = await make(house)
    names = [await opened(house, agent) for _ in range(5)]
    house.model.hold = slow = asyncio.Event()
    waiting = [asyncio.ensure_future(house.say(agent.id, name, conversation=name)) for name in names[:4]]
    await asked(house, 4)
    house.model.hold = None
    assert rows(await house.say(agent.id, "quick", conversation=names[4]))[-1].text == "ok"
    assert rows(await house.say(agent.id, "quick"))[-1].text == "ok"
    assert not any(task.done() for task in waiting)
    slow.set()
    await asyncio.gather(*waiting)
    assert sorted(heard(request)[0] for request in house.model.requests[:4]) == sorted(names[:4])


async def test_whoever_wants_a_conversation_alone_is_told_whose_turn_it_is(house):
    agent = await make(house)
    conversation = await opened(house, agent)
    house.model.hold = asyncio.Event()
    first = await begin(house, agent.id, "first", conversation=conversation, alone=True)
    with pytest.raises(ConversationBusy) as busy:
        await house.say(agent.id, "second", conversation=conversation, alone=True)
    assert busy.value.run_id == first.run_id
    queued = asyncio.ensure_future(house.say(agent.id, "third", conversation=conversation))  # waits its turn
    house.model.hold.set()
    assert ended([event async for event in first.events()]).stop_reason is StopReason.end_turn
    await queued
    house.model.hold = None
    await house.say(agent.id, "fourth", conversation=conversation, alone=True)
    assert heard(house.model.requests[-1]) == ["first", "ok", "third", "ok", "fourth"]


async def test_waiting_for_the_agent_to_be_loaded_keeps_a_conversation_too(house):
    agent = await make(house)
    house.model.hold = asyncio.Event()
    turns = await asyncio.gather(
        begin(house, agent.id, "one", alone=True), begin(house, agent.id, "two", alone=True), return_exceptions=True
    )
    assert sorted(type(turn).__name__ for turn in turns) == ["ConversationBusy", "TurnStream"]
    house.model.hold.set()


async def test_a_deleted_conversation_is_not_found_and_its_turn_ends(house):
    agent = await make(house)
    conversation = await opened(house, agent, OWN_HUMAN)
    house.model.script = [says("", TEA), says("never heard")]
    house.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(house.say(agent.id, "note this", conversation=conversation))
    await asked(house, 1)
    await threads(house).delete(conversation)
    async with asyncio.timeout(WAIT_S):  # and the model still has not said a word
        assert ended(await turn).stop_reason is StopReason.cancelled
    history = await house.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m for m in history if m.conversation_id == conversation and m.role is not Role.system] == []
    (run,) = await house.kelpie.api().runs.page(RunQuery(agent_ids=(agent.id,)))
    assert run.status is RunStatus.cancelled
    with pytest.raises(NotFound):
        await threads(house).lane(conversation)
    house.model.hold, house.model.script = None, []
    assert rows(await house.say(agent.id, "still there?"))[-1].text == "ok"


async def test_only_the_turn_of_a_deleted_conversation_is_broken_off(house):
    agent = await make(house)
    gone, other = await opened(house, agent), await opened(house, agent)
    house.model.hold = asyncio.Event()
    turns = [asyncio.ensure_future(house.say(agent.id, "hello", conversation=name)) for name in (gone, other, "")]
    await asked(house, 3)
    await threads(house).delete(gone)
    async with asyncio.timeout(WAIT_S):
        assert ended(await turns[0]).stop_reason is StopReason.cancelled
    assert not turns[1].done() and not turns[2].done()
    house.model.hold.set()
    assert [ended(await turn).stop_reason for turn in turns[1:]] == [StopReason.end_turn] * 2


async def test_calls_that_wait_in_a_deleted_conversation_are_not_made(house):
    agent = await make(house, tool_rules=(ToolRule("requires_approval", "memory_insert"),))
    conversation = await opened(house, agent)
    house.model.script = [says("", TEA)]
    events = await house.say(agent.id, "I like tea", conversation=conversation)
    assert ended(events).stop_reason is StopReason.requires_approval
    fork = await threads(house).fork(conversation)
    await threads(house).delete(conversation)
    history = await house.kelpie.api().histories.messages(agent.id, MessageQuery(conversation_id=conversation))
    (result,) = [result for message in history for result in message.tool_returns]
    assert result.call_id == "call_0" and not result.ok
    assert (await values(house, agent))["human"] == "Bob"
    await house.say(agent.id, "well then", conversation=fork.id)
    assert heard(house.model.requests[-1]) == ["I like tea", "well then"]
    assert rows(await house.say(agent.id, "still there?"))[-1].text == "ok"


async def test_a_cold_agent_knows_that_a_conversation_is_gone(house):
    agent, stranger = await make(house), await make(house)
    conversation = await opened(house, agent)
    with pytest.raises(NotFound):
        await house.say(stranger.id, "not mine", conversation=conversation)
    await threads(house).delete(conversation)
    with pytest.raises(NotFound):
        await house.say(agent.id, "hello", conversation=conversation)
    assert await house.kelpie.api().runs.page(RunQuery()) == []


async def test_lanes_out_of_use_are_put_away_and_come_back_as_they_were(house):
    agent = await make(house)
    names = [await opened(house, agent) for _ in range(IDLE_LANES_MAX + 3)]
    for name in names:
        await house.say(agent.id, f"hello {name}", conversation=name)
    hot = house.kelpie.runtime.dispatcher.handler(agent.id)._hot
    assert [lane.conversation for lane in hot.conversations()] == ["", *names[3:]]
    await house.say(agent.id, "again", conversation=names[0])
    assert heard(house.model.requests[-1]) == [f"hello {names[0]}", "ok", "again"]


async def test_emptying_the_history_empties_every_conversation_and_they_go_on(house):
    agent = await make(house)
    conversation = await opened(house, agent)
    await house.say(agent.id, "hello", conversation=conversation)
    await house.kelpie.api().histories.reset(agent.id, False)
    await house.say(agent.id, "again", conversation=conversation)
    assert heard(house.model.requests[-1]) == ["again"]
    await house.say(agent.id, "and again", conversation=conversation)
    assert heard(house.model.requests[-1]) == ["again", "ok", "and again"]


@pytest.fixture
async def workshop(tmp_path):
    """A house with a tool that runs outside and waits to be let go."""
    gate = asyncio.Event()

    async def outside(tool, call, arguments):
        await gate.wait()
        return Outcome("done")

    house = await House(tmp_path / "kelpie.db", external=outside).start()
    house.gate = gate
    source = "def saw():\n    '''Saws.'''\n"
    await house.kelpie.api().tools.create(NewTool(source))
    yield house
    await house.stop()


async def test_a_fork_in_the_middle_of_a_turn_takes_what_is_finished(workshop):
    house = workshop
    agent = await make(house, tools=("saw",))
    conversation = await opened(house, agent, OWN_HUMAN)
    await house.say(agent.id, "hello", conversation=conversation)
    house.model.script = [says("", ("saw", {})), says("ok"), says("sawn")]
    turn = asyncio.ensure_future(house.say(agent.id, "saw it", conversation=conversation))
    await until(lambda: called(house, conversation))
    fork = await threads(house).fork(conversation)
    await house.say(agent.id, "what now?", conversation=fork.id)
    assert heard(house.model.requests[-1]) == ["hello", "ok", "saw it", "what now?"]
    house.gate.set()
    await turn
    again = await threads(house).fork(fork.id)
    house.model.script = [says("", TEA), says("noted")]
    await house.say(agent.id, "I like tea", conversation=again.id)
    assert heard(house.model.requests[-2]) == ["hello", "ok", "saw it", "what now?", "ok", "I like tea"]
    await house.say(agent.id, "and here?", conversation=fork.id)
    assert "Likes tea" not in house.model.requests[-1].system
    await house.say(agent.id, "and there?", conversation=conversation)
    assert heard(house.model.requests[-1]) == ["hello", "ok", "saw it", "", "", "sawn", "and there?"]


async def test_a_call_whose_conversation_is_deleted_has_its_result_in_the_history(workshop):
    house = workshop
    agent = await make(house, tools=("saw",))
    conversation = await opened(house, agent)
    house.model.script = [says("", ("saw", {}), ("saw", {}))]
    turn = asyncio.ensure_future(house.say(agent.id, "saw it twice", conversation=conversation))
    await until(lambda: called(house, conversation))
    await threads(house).delete(conversation)
    house.gate.set()
    events = await turn
    assert ended(events).stop_reason is StopReason.cancelled
    history = await house.kelpie.api().histories.messages(agent.id, MessageQuery(conversation_id=conversation))
    results = [result for message in history for result in message.tool_returns]
    assert [(result.call_id, result.ok) for result in results] == [("call_0", True), ("call_1", False)]
    assert rows(events)[-1].tool_returns == tuple(results)


async def called(house, conversation):
    kept = await threads(house).messages(conversation, ThreadQuery())
    return any(message.tool_calls for message in kept)


async def test_turns_of_several_conversations_go_on_after_a_crash(workshop):
    house = workshop
    agent = await make(house, tools=("saw",))
    names = ["", *[await opened(house, agent) for _ in range(3)]]
    gone = await opened(house, agent)
    house.model.script = [says("", ("saw", {})) for _ in (*names, gone)]
    turns = [await begin(house, agent.id, f"saw {name}", conversation=name) for name in (*names, gone)]
    for name in (*names[1:], gone):
        await until(lambda name=name: called(house, name))
    await until(lambda: steps_done(house, 5))
    await house.stop()
    house.kelpie = None
    house.model.script = []
    await house.start()
    await threads(house).delete(gone)
    await until(lambda: all_ended(house))
    runs = {run.id: run for run in await house.kelpie.api().runs.page(RunQuery())}
    assert [runs[turn.run_id].status for turn in turns[:4]] == [RunStatus.completed] * 4
    assert runs[turns[4].run_id].status in (RunStatus.failed, RunStatus.cancelled, RunStatus.completed)
    for name in names:
        events = await house.say(agent.id, "alive?", conversation=name)
        assert ended(events).stop_reason is StopReason.end_turn
        assert heard(house.model.requests[-1])[-2:] == ["ok", "alive?"]


async def steps_done(house, count):
    return sum(run.step_count for run in await house.kelpie.api().runs.page(RunQuery())) == count


async def all_ended(house):
    return not await house.kelpie.api().runs.page(RunQuery(active=True))
