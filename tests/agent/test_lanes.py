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
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.test_recovery import begin, until

WAIT_S = 60.0

TEA = ("memory_insert", {"label": "human", "new_string": "Likes tea"})
PAGE = Page(descending=False)
OWN_HUMAN = NewConversation(isolated_labels=("human",))


async def make(rig, **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Bob"), NewBlock("persona", "Kind")))
    return (await rig.kelpie.api().agents.create(NewAgent(**fields))).agent


def threads(rig):
    return rig.kelpie.api().conversations


async def opened(rig, agent, new=None):
    return (await threads(rig).create(agent.id, new or NewConversation())).id


async def asked(rig, times):
    async def so_often():
        return len(rig.model.requests) >= times

    await until(so_often)


def heard(request):
    """What the model was shown of the conversation."""
    return [entry.message.text for entry in request.messages]


async def values(rig, agent):
    return {block.label: block.value for block in await rig.kelpie.api().blocks.of_agent(agent.id)}


async def test_what_is_said_in_one_conversation_does_not_show_in_another(rig):
    agent = await make(rig)
    one, other = await opened(rig, agent), await opened(rig, agent)
    await rig.say(agent.id, "to all of you")
    await rig.say(agent.id, "first here", conversation=one)
    await rig.say(agent.id, "second here", conversation=one)
    await rig.say(agent.id, "elsewhere", conversation=other)
    assert [heard(request) for request in rig.model.requests] == [
        ["to all of you"],
        ["first here"],
        ["first here", "ok", "second here"],
        ["elsewhere"],
    ]
    kept = await threads(rig).messages(one, ThreadQuery(descending=False))
    assert [message.text for message in kept[1:]] == ["first here", "ok", "second here", "ok"]
    assert {message.conversation_id for message in kept} == {one}
    await rig.stop()
    await rig.start()
    await rig.say(agent.id, "after a night", conversation=one)
    assert heard(rig.model.requests[-1]) == ["first here", "ok", "second here", "ok", "after a night"]


async def test_a_turn_in_a_conversation_leaves_its_marks(rig):
    agent = await make(rig)
    conversation = await opened(rig, agent)
    events = await rig.say(agent.id, "hello", conversation=conversation)
    (run,) = await rig.kelpie.api().runs.page(RunQuery(conversation_id=conversation))
    assert run.id == ended(events).run_id and run.conversation_id == conversation
    found, context = await threads(rig).get(conversation)
    assert found.last_message_at == found.updated_at == run.completed_at
    assert list(context[1:]) == [m.id for m in await rig.kelpie.api().runs.messages(run.id, PAGE)]


async def test_a_conversation_edits_its_own_copy_and_the_others_see_the_agents(rig):
    agent = await make(rig)
    own, plain = await opened(rig, agent, OWN_HUMAN), await opened(rig, agent)
    for conversation in (own, plain):  # both are hot
        await rig.say(agent.id, "hello", conversation=conversation)
    rig.model.script = [says("", TEA), says("noted")]
    await rig.say(agent.id, "I like tea", conversation=own)
    assert "Likes tea" in rig.model.requests[-1].system
    assert (await values(rig, agent))["human"] == "Bob"
    await rig.say(agent.id, "and here?", conversation=plain)
    assert "Likes tea" not in rig.model.requests[-1].system
    rig.model.script = [says("", TEA), says("noted")]
    await rig.say(agent.id, "tell everybody")
    await rig.say(agent.id, "and now?", conversation=plain)
    assert "Likes tea" in rig.model.requests[-1].system
    await rig.kelpie.api().blocks.update_by_label(agent.id, "persona", {"value": "Stern"})
    await rig.say(agent.id, "who are you?", conversation=own)
    assert "Stern" in rig.model.requests[-1].system


async def test_an_edit_of_a_conversations_copy_from_outside_is_seen_by_its_next_step(rig):
    agent = await make(rig)
    conversation = await opened(rig, agent, OWN_HUMAN)
    await rig.say(agent.id, "hello", conversation=conversation)
    (copy,) = (await threads(rig).get(conversation))[0].isolated_block_ids
    rig.model.script = [says("", ("memory_insert", {"label": "persona", "new_string": "Brief"})), says("done")]
    rig.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(rig.say(agent.id, "note", conversation=conversation))
    await asked(rig, 2)
    await rig.kelpie.api().blocks.update(copy, {"value": "Ann"})
    rig.model.hold.set()
    await turn
    assert "Ann" in rig.model.requests[-1].system and "Bob" not in rig.model.requests[-1].system
    await rig.kelpie.api().blocks.delete(copy)
    await rig.say(agent.id, "and now?", conversation=conversation)
    assert "Bob" in rig.model.requests[-1].system


@pytest.mark.parametrize("command", ["delete", "rename"])
async def test_a_conversations_copy_keeps_its_name(rig, command):
    agent = await make(rig, tools=("memory",))
    conversation = await opened(rig, agent, OWN_HUMAN)
    call = {"command": command, "path": "/memories/human", "old_path": "/memories/human", "new_path": "/memories/me"}
    rig.model.script = [says("", ("memory", call)), says("well")]
    events = await rig.say(agent.id, "away with it", conversation=conversation)
    (result,) = rows(events)[1].tool_returns
    assert not result.ok and "belongs to this conversation only" in result.text
    assert await values(rig, agent) == {"human": "Bob", "persona": "Kind"}


async def test_a_conversation_thinks_with_its_own_model_and_a_change_counts_from_the_next_turn(rig):
    agent = await make(rig, model_settings={"temperature": 0.9})
    conversation = await opened(rig, agent, NewConversation(model_settings={"temperature": 0.2}))
    await rig.say(agent.id, "hello", conversation=conversation)
    await threads(rig).update(conversation, {"model_settings": {"temperature": 0.4}, "context_window_limit": 9_000})
    await rig.say(agent.id, "hello", conversation=conversation)
    await threads(rig).update(conversation, {"model_settings": None})
    await rig.say(agent.id, "hello", conversation=conversation)
    await rig.say(agent.id, "hello")
    assert [request.temperature for request in rig.model.requests] == [0.2, 0.4, 0.9, 0.9]


async def test_conversations_answer_at_the_same_time_and_a_slow_one_holds_nobody(rig):
    agent = await make(rig)
    names = [await opened(rig, agent) for _ in range(5)]
    rig.model.hold = slow = asyncio.Event()
    waiting = [asyncio.ensure_future(rig.say(agent.id, name, conversation=name)) for name in names[:4]]
    await asked(rig, 4)
    rig.model.hold = None
    assert rows(await rig.say(agent.id, "quick", conversation=names[4]))[-1].text == "ok"
    assert rows(await rig.say(agent.id, "quick"))[-1].text == "ok"
    assert not any(task.done() for task in waiting)
    slow.set()
    await asyncio.gather(*waiting)
    assert sorted(heard(request)[0] for request in rig.model.requests[:4]) == sorted(names[:4])


async def test_whoever_wants_a_conversation_alone_is_told_whose_turn_it_is(rig):
    agent = await make(rig)
    conversation = await opened(rig, agent)
    rig.model.hold = asyncio.Event()
    first = await begin(rig, agent.id, "first", conversation=conversation, alone=True)
    with pytest.raises(ConversationBusy) as busy:
        await rig.say(agent.id, "second", conversation=conversation, alone=True)
    assert busy.value.run_id == first.run_id
    queued = asyncio.ensure_future(rig.say(agent.id, "third", conversation=conversation))  # waits its turn
    rig.model.hold.set()
    assert ended([event async for event in first.events()]).stop_reason is StopReason.end_turn
    await queued
    rig.model.hold = None
    await rig.say(agent.id, "fourth", conversation=conversation, alone=True)
    assert heard(rig.model.requests[-1]) == ["first", "ok", "third", "ok", "fourth"]


async def test_waiting_for_the_agent_to_be_loaded_keeps_a_conversation_too(rig):
    agent = await make(rig)
    rig.model.hold = asyncio.Event()
    turns = await asyncio.gather(
        begin(rig, agent.id, "one", alone=True), begin(rig, agent.id, "two", alone=True), return_exceptions=True
    )
    assert sorted(type(turn).__name__ for turn in turns) == ["ConversationBusy", "TurnStream"]
    rig.model.hold.set()


async def test_a_deleted_conversation_is_not_found_and_its_turn_ends(rig):
    agent = await make(rig)
    conversation = await opened(rig, agent, OWN_HUMAN)
    rig.model.script = [says("", TEA), says("never heard")]
    rig.model.hold = asyncio.Event()
    turn = asyncio.ensure_future(rig.say(agent.id, "note this", conversation=conversation))
    await asked(rig, 1)
    await threads(rig).delete(conversation)
    async with asyncio.timeout(WAIT_S):  # and the model still has not said a word
        assert ended(await turn).stop_reason is StopReason.cancelled
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m for m in history if m.conversation_id == conversation and m.role is not Role.system] == []
    (run,) = await rig.kelpie.api().runs.page(RunQuery(agent_ids=(agent.id,)))
    assert run.status is RunStatus.cancelled
    with pytest.raises(NotFound):
        await threads(rig).lane(conversation)
    rig.model.hold, rig.model.script = None, []
    assert rows(await rig.say(agent.id, "still there?"))[-1].text == "ok"


async def test_only_the_turn_of_a_deleted_conversation_is_broken_off(rig):
    agent = await make(rig)
    gone, other = await opened(rig, agent), await opened(rig, agent)
    rig.model.hold = asyncio.Event()
    turns = [asyncio.ensure_future(rig.say(agent.id, "hello", conversation=name)) for name in (gone, other, "")]
    await asked(rig, 3)
    await threads(rig).delete(gone)
    async with asyncio.timeout(WAIT_S):
        assert ended(await turns[0]).stop_reason is StopReason.cancelled
    assert not turns[1].done() and not turns[2].done()
    rig.model.hold.set()
    assert [ended(await turn).stop_reason for turn in turns[1:]] == [StopReason.end_turn] * 2


async def test_calls_that_wait_in_a_deleted_conversation_are_not_made(rig):
    agent = await make(rig, tool_rules=(ToolRule("requires_approval", "memory_insert"),))
    conversation = await opened(rig, agent)
    rig.model.script = [says("", TEA)]
    events = await rig.say(agent.id, "I like tea", conversation=conversation)
    assert ended(events).stop_reason is StopReason.requires_approval
    fork = await threads(rig).fork(conversation)
    await threads(rig).delete(conversation)
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery(conversation_id=conversation))
    (result,) = [result for message in history for result in message.tool_returns]
    assert result.call_id == "call_0" and not result.ok
    assert (await values(rig, agent))["human"] == "Bob"
    await rig.say(agent.id, "well then", conversation=fork.id)
    assert heard(rig.model.requests[-1]) == ["I like tea", "well then"]
    assert rows(await rig.say(agent.id, "still there?"))[-1].text == "ok"


async def test_a_cold_agent_knows_that_a_conversation_is_gone(rig):
    agent, stranger = await make(rig), await make(rig)
    conversation = await opened(rig, agent)
    with pytest.raises(NotFound):
        await rig.say(stranger.id, "not mine", conversation=conversation)
    await threads(rig).delete(conversation)
    with pytest.raises(NotFound):
        await rig.say(agent.id, "hello", conversation=conversation)
    assert await rig.kelpie.api().runs.page(RunQuery()) == []


async def test_lanes_out_of_use_are_put_away_and_come_back_as_they_were(rig):
    agent = await make(rig)
    names = [await opened(rig, agent) for _ in range(IDLE_LANES_MAX + 3)]
    for name in names:
        await rig.say(agent.id, f"hello {name}", conversation=name)
    live = rig.kelpie.runtime.dispatcher.handler(agent.id)._live
    assert [lane.conversation for lane in live.conversations()] == ["", *names[3:]]
    await rig.say(agent.id, "again", conversation=names[0])
    assert heard(rig.model.requests[-1]) == [f"hello {names[0]}", "ok", "again"]


async def test_the_lane_that_was_not_used_for_longest_is_put_away_first(rig):
    agent = await make(rig)
    names = [await opened(rig, agent) for _ in range(IDLE_LANES_MAX + 1)]
    for name in (*names[:-1], names[0], names[-1]):
        await rig.say(agent.id, f"hello {name}", conversation=name)
    live = rig.kelpie.runtime.dispatcher.handler(agent.id)._live
    assert [lane.conversation for lane in live.conversations()] == ["", *names[2:-1], names[0], names[-1]]


async def test_emptying_the_history_empties_every_conversation_and_they_go_on(rig):
    agent = await make(rig)
    conversation = await opened(rig, agent)
    await rig.say(agent.id, "hello", conversation=conversation)
    await rig.kelpie.api().histories.reset(agent.id, False)
    await rig.say(agent.id, "again", conversation=conversation)
    assert heard(rig.model.requests[-1]) == ["again"]
    await rig.say(agent.id, "and again", conversation=conversation)
    assert heard(rig.model.requests[-1]) == ["again", "ok", "and again"]


@pytest.fixture
async def workshop(tmp_path):
    """A rig with a tool that runs outside and waits to be let go."""
    gate = asyncio.Event()

    async def outside(tool, call, arguments):
        await gate.wait()
        return Outcome("done")

    rig = await Rig(tmp_path / "kelpie.db", external=outside).start()
    rig.gate = gate
    source = "def saw():\n    '''Saws.'''\n"
    await rig.kelpie.api().tools.create(NewTool(source))
    yield rig
    await rig.stop()


async def test_a_fork_in_the_middle_of_a_turn_takes_what_is_finished(workshop):
    rig = workshop
    agent = await make(rig, tools=("saw",))
    conversation = await opened(rig, agent, OWN_HUMAN)
    await rig.say(agent.id, "hello", conversation=conversation)
    rig.model.script = [says("", ("saw", {})), says("ok"), says("sawn")]
    turn = asyncio.ensure_future(rig.say(agent.id, "saw it", conversation=conversation))
    await until(lambda: called(rig, conversation))
    fork = await threads(rig).fork(conversation)
    await rig.say(agent.id, "what now?", conversation=fork.id)
    assert heard(rig.model.requests[-1]) == ["hello", "ok", "saw it", "what now?"]
    rig.gate.set()
    await turn
    again = await threads(rig).fork(fork.id)
    rig.model.script = [says("", TEA), says("noted")]
    await rig.say(agent.id, "I like tea", conversation=again.id)
    assert heard(rig.model.requests[-2]) == ["hello", "ok", "saw it", "what now?", "ok", "I like tea"]
    await rig.say(agent.id, "and here?", conversation=fork.id)
    assert "Likes tea" not in rig.model.requests[-1].system
    await rig.say(agent.id, "and there?", conversation=conversation)
    assert heard(rig.model.requests[-1]) == ["hello", "ok", "saw it", "", "", "sawn", "and there?"]


async def test_a_fork_up_to_a_reply_takes_the_results_of_all_its_calls(workshop):
    rig = workshop
    agent = await make(rig, tools=("saw",))
    conversation = await opened(rig, agent)
    rig.gate.set()
    rig.model.script = [says("", ("saw", {}), ("saw", {})), says("sawn")]
    said = rows(await rig.say(agent.id, "saw both", conversation=conversation))
    results = [row for row in said if row.role is Role.tool]
    assert len(results) == 2 and said[0].tool_calls
    fork = await threads(rig).fork(conversation, up_to=said[0].id)
    await rig.say(agent.id, "and now?", conversation=fork.id)
    shown = [entry.message for entry in rig.model.requests[-1].messages]
    assert [len(message.tool_calls) for message in shown if message.tool_calls] == [2]
    assert sum(len(message.tool_returns) for message in shown) == 2


async def test_a_call_whose_conversation_is_deleted_has_its_result_in_the_history(workshop):
    rig = workshop
    agent = await make(rig, tools=("saw",))
    conversation = await opened(rig, agent)
    rig.model.script = [says("", ("saw", {}), ("saw", {}))]
    turn = asyncio.ensure_future(rig.say(agent.id, "saw it twice", conversation=conversation))
    await until(lambda: called(rig, conversation))
    await threads(rig).delete(conversation)
    rig.gate.set()
    events = await turn
    assert ended(events).stop_reason is StopReason.cancelled
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery(conversation_id=conversation))
    results = [result for message in history for result in message.tool_returns]
    assert [(result.call_id, result.ok) for result in results] == [("call_0", True), ("call_1", False)]
    assert rows(events)[-1].tool_returns == tuple(results)


async def called(rig, conversation):
    kept = await threads(rig).messages(conversation, ThreadQuery())
    return any(message.tool_calls for message in kept)


async def test_turns_of_several_conversations_go_on_after_a_crash(workshop):
    rig = workshop
    agent = await make(rig, tools=("saw",))
    names = ["", *[await opened(rig, agent) for _ in range(3)]]
    gone = await opened(rig, agent)
    rig.model.script = [says("", ("saw", {})) for _ in (*names, gone)]
    turns = [await begin(rig, agent.id, f"saw {name}", conversation=name) for name in (*names, gone)]
    for name in (*names[1:], gone):
        await until(lambda name=name: called(rig, name))
    await until(lambda: steps_done(rig, 5))
    await rig.stop()
    rig.kelpie = None
    rig.model.script = []
    await rig.start()
    await threads(rig).delete(gone)
    await until(lambda: all_ended(rig))
    runs = {run.id: run for run in await rig.kelpie.api().runs.page(RunQuery())}
    assert [runs[turn.run_id].status for turn in turns[:4]] == [RunStatus.completed] * 4
    assert runs[turns[4].run_id].status in (RunStatus.failed, RunStatus.cancelled, RunStatus.completed)
    for name in names:
        events = await rig.say(agent.id, "alive?", conversation=name)
        assert ended(events).stop_reason is StopReason.end_turn
        assert heard(rig.model.requests[-1])[-2:] == ["ok", "alive?"]


async def steps_done(rig, count):
    return sum(run.step_count for run in await rig.kelpie.api().runs.page(RunQuery())) == count


async def all_ended(rig):
    return not await rig.kelpie.api().runs.page(RunQuery(active=True))
