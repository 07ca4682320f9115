"""A server that is cut off in the middle of a turn, and started again on the same file."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from kelpie.agent.maintenance import cleanup
from kelpie.agent.prompt.synthetic_results import INTERRUPTED
from kelpie.agent.turn.send_request import SendRequest
from kelpie.agent.turn.stored_runs import StoredRuns
from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import MessageQuery, NewMessage, Role, Text
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import RunOver, StorageError
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.tools.tools import NewTool
from kelpie.storage.runs import runs as run_rows
from kelpie.storage.runs import unfinished
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.storage.tables import journal
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says

SOURCE = '''
def outside(x: str) -> str:
    """Does something outside.

    Args:
        x (str): anything
    """
    return x
'''


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - the condition lies in the database
            await asyncio.sleep(0.005)


async def make(rig, **fields):
    fields.setdefault("memory_blocks", (NewBlock("human", "Name: Bob"),))
    return (await rig.kelpie.api().agents.create(NewAgent(**fields))).agent


async def begin(rig, agent_id, text, **options):
    """Sends without waiting for the end."""
    return await rig.kelpie.api().sending.send(
        agent_id, SendRequest((NewMessage(Role.user, (Text(text),)),), **options)
    )


async def behind(rig, agent_id, text, **options):
    """Sends in the background."""
    send = SendRequest((NewMessage(Role.user, (Text(text),)),), **options)
    return await rig.kelpie.api().background_runs.accept(agent_id, send)


async def only_run(rig):
    (run,) = await rig.kelpie.api().runs.page(RunQuery())
    return run


async def run_is(rig, status):
    return (await only_run(rig)).status is status


async def test_cut_off_before_the_first_step_the_turn_is_closed_and_nothing_is_in_the_history(rig):
    agent = await make(rig)
    rig.model.hold = asyncio.Event()
    await begin(rig, agent.id, "hello")
    await until(lambda: _true(rig.model.requests))
    await until(lambda: _has_run(rig))
    await rig.stop()
    rig.model.hold = None
    await rig.start()
    await until(lambda: run_is(rig, RunStatus.failed))
    run = await only_run(rig)
    assert run.stop_reason is StopReason.error and run.metadata["error"]["type"] == "interrupted"
    assert [m.role for m in await rig.kelpie.api().histories.messages(agent.id, MessageQuery())] == [Role.system]
    rig.model.script = [says("here")]
    assert rows(await rig.say(agent.id, "hello again"))[-1].text == "here"


async def _true(value):
    return bool(value)


async def _has_run(rig):
    return bool(await rig.kelpie.api().runs.page(RunQuery()))


async def test_a_background_turn_without_a_step_is_begun_again(rig):
    agent = await make(rig)
    rig.model.hold = asyncio.Event()
    await behind(rig, agent.id, "hello")
    await until(lambda: _has_run(rig))
    await rig.stop()
    rig.model.hold, rig.model.script = None, [says("late but here")]
    await rig.start()
    await until(lambda: run_is(rig, RunStatus.completed))
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [(m.role, m.text) for m in history[1:]] == [(Role.user, "hello"), (Role.assistant, "late but here")]


async def test_a_turn_goes_on_from_its_last_committed_step(rig):
    agent = await make(rig)
    gate = asyncio.Event()

    async def held(request):
        await gate.wait()

    rig.model.script = [says("", ("memory_insert", {"label": "human", "new_string": "Likes tea"}))]
    turn = await begin(rig, agent.id, "I like tea")
    async for event in turn.events():
        rig.model.hold = asyncio.Event()  # the second model call never comes back
        if getattr(event, "message", None) and event.message.role is Role.tool:
            break
    await until(lambda: _true(len(rig.model.requests) == 2))
    await rig.stop()
    rig.model.hold, rig.model.script, asked = None, [says("Noted")], len(rig.model.requests)
    await rig.start()
    await until(lambda: run_is(rig, RunStatus.completed))
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.role for m in history[1:]] == [Role.user, Role.assistant, Role.tool, Role.assistant]
    assert len(rig.model.requests) == asked + 1, "a committed reply is not asked for again"
    assert (await only_run(rig)).step_count == 2
    assert (await rig.kelpie.api().blocks.of_agent_by_label(agent.id, "human")).value.count("Likes tea") == 1


async def test_an_outside_tool_that_was_running_is_reported_as_interrupted(tmp_path):
    started, never = asyncio.Event(), asyncio.Event()

    async def outside(tool, call, arguments):
        started.set()
        await never.wait()
        return Outcome("unreachable")

    rig = await Rig(tmp_path / "kelpie.db", external=outside).start()
    tool = await rig.kelpie.api().tools.create(NewTool(SOURCE))
    agent = await make(rig, tool_ids=(tool.id,))
    rig.model.script = [says("", ("outside", {"x": "1"}), ("memory_insert", {"label": "human", "new_string": "after"}))]
    await begin(rig, agent.id, "do it")
    async with asyncio.timeout(10):
        await started.wait()
    await rig.stop()
    rig.model.script = [says("I see it was interrupted")]
    await rig.start()
    await until(lambda: run_is(rig, RunStatus.completed))
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    results = [r for m in history for r in m.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", False), ("call_1", True)]
    assert results[0].text == INTERRUPTED
    assert "after" in (await rig.kelpie.api().blocks.of_agent_by_label(agent.id, "human")).value
    await rig.stop()


async def test_outside_tools_run_in_order_and_each_result_is_committed_before_the_next(tmp_path):
    seen = []

    async def outside(tool, call, arguments):
        history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
        seen.append((arguments["x"], [r.text for m in history for r in m.tool_returns]))
        return Outcome(f"did {arguments['x']}")

    rig = await Rig(tmp_path / "kelpie.db", external=outside).start()
    tool = await rig.kelpie.api().tools.create(NewTool(SOURCE))
    agent = await make(rig, tool_ids=(tool.id,))
    rig.model.script = [says("", ("outside", {"x": "a"}), ("outside", {"x": "b"})), says("done")]
    events = await rig.say(agent.id, "do both")
    assert seen == [("a", []), ("b", ["did a"])]
    assert [m.role for m in rows(events)] == [Role.assistant, Role.tool, Role.tool, Role.assistant]
    await rig.stop()


async def test_without_a_sandbox_a_custom_tool_is_refused_with_the_reason(rig):
    tool = await rig.kelpie.api().tools.create(NewTool(SOURCE))
    agent = await make(rig, tool_ids=(tool.id,))
    rig.model.script = [says("", ("outside", {"x": "a"})), says("sorry")]
    result = rows(await rig.say(agent.id, "do it"))[1].tool_returns[0]
    assert not result.ok and "sandbox" in result.text


@pytest.mark.parametrize("failing", ["open", "step"])
async def test_a_commit_that_fails_is_told_and_the_agent_recovers(rig, failing, monkeypatch):
    agent = await make(rig)
    await rig.say(agent.id, "warm up")
    database = rig.kelpie.world.database
    real, broken = database.transact, [True]

    async def transact(fn):
        kind = fn.__closure__ and any(
            c.cell_contents == failing for c in fn.__closure__ if isinstance(c.cell_contents, str)
        )
        if broken[0] and kind:
            raise StorageError("the disk is gone")
        return await real(fn)

    monkeypatch.setattr(database, "transact", transact)
    end = ended(await rig.say(agent.id, "will fail"))
    assert end.stop_reason is StopReason.error and isinstance(end.error, StorageError)
    broken[0] = False
    rig.model.script = [says("back")]
    assert rows(await rig.say(agent.id, "again"))[-1].text == "back"
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.text for m in history if m.role is Role.user] == ["warm up", "again"]
    runs = await rig.kelpie.api().runs.page(RunQuery())
    assert all(run.status in (RunStatus.completed, RunStatus.failed) for run in runs)


async def test_a_stopped_agent_stays_stopped_after_a_restart_and_its_open_turn_is_closed(rig):
    agent = await make(rig)
    await rig.say(agent.id, "hi")
    status = await rig.kelpie.api().agents.stop(agent.id)
    assert status.state == "stopped"
    with pytest.raises(Exception, match="stopped"):
        await rig.say(agent.id, "no")
    await rig.stop()
    await rig.start()
    assert (await rig.kelpie.api().agents.get(agent.id)).status.state == "stopped"
    with pytest.raises(Exception, match="stopped"):
        await rig.say(agent.id, "no")
    assert (await rig.kelpie.api().agents.start(agent.id)).state == "unloaded"
    rig.model.script = [says("yes")]
    assert rows(await rig.say(agent.id, "now"))[-1].text == "yes"


async def test_messages_of_one_agent_queue_and_are_answered_in_order(rig):
    agent = await make(rig)
    rig.model.script = [lambda r: says(f"re: {r.messages[-1].message.text}")] * 5
    results = await asyncio.gather(*(rig.say(agent.id, f"m{i}") for i in range(5)))
    assert [rows(events)[-1].text for events in results] == [f"re: m{i}" for i in range(5)]
    history = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [m.role for m in history[1:]] == [Role.user, Role.assistant] * 5


async def test_a_turn_that_cannot_go_on_is_closed_and_does_not_brick_the_agent(rig, monkeypatch):
    agent = await make(rig)
    rig.model.script = [says("", ("memory_insert", {"label": "human", "new_string": "x"}))]
    turn = await begin(rig, agent.id, "one")
    async for event in turn.events():
        rig.model.hold = asyncio.Event()
        if getattr(event, "message", None) and event.message.role is Role.tool:
            break
    await rig.stop()

    async def broken(self):
        raise RuntimeError("a bug of ours")

    with monkeypatch.context() as patched:
        patched.setattr("kelpie.agent.turn.loop.Turn._run_steps", broken)
        rig.model.hold = None
        await rig.start()
        await until(lambda: run_is(rig, RunStatus.failed))
    assert "a bug of ours" in (await only_run(rig)).metadata["error"]["message"]
    rig.model.script = [says("fine")]
    assert rows(await rig.say(agent.id, "two"))[-1].text == "fine"


async def test_the_journal_of_a_turn_that_ended_long_ago_is_pruned(rig, monkeypatch):
    agent = await make(rig)
    await rig.say(agent.id, "hello")
    count = select(func.count()).select_from(journal)
    database = rig.kelpie.world.database
    assert await database.read(lambda tx: tx.execute(count).scalar_one()) == 2
    await rig.stop()
    monkeypatch.setattr(cleanup, "IN_DOUBT", -cleanup.IN_DOUBT)  # as if the day had passed
    await rig.start()
    await until(lambda: _is_zero(rig, count))
    assert ended(await rig.say(agent.id, "hello again")).stop_reason is StopReason.end_turn
    said = await rig.kelpie.api().histories.messages(agent.id, MessageQuery())
    assert [row.text for row in said if row.role is Role.user] == ["hello", "hello again"]


async def _is_zero(rig, count):
    return await rig.kelpie.world.database.read(lambda tx: tx.execute(count).scalar_one()) == 0


async def test_a_run_that_has_ended_since_it_was_found_is_not_taken_up(rig):
    agent, database = await make(rig), rig.kelpie.world.database
    rig.model.hold = asyncio.Event()
    accepted = await behind(rig, agent.id, "go")
    await until(lambda: run_is(rig, RunStatus.running))
    found = await database.read(lambda tx: unfinished.find_unfinished(tx, accepted.id))
    assert found is not None
    await rig.kelpie.api().cancellations.of_agent(agent.id, [accepted.id])
    await until(lambda: run_is(rig, RunStatus.cancelled))
    rig.model.hold = None
    ended_as, asked = await only_run(rig), len(rig.model.requests)

    async def resume(live):
        live.stored_runs.keep(found)
        await live.stored_runs.resume("")

    async with asyncio.timeout(10):
        await rig.kelpie.runtime.dispatcher.submit(agent.id, "", resume)
    assert len(rig.model.requests) == asked, "the model is not asked for a run that has ended"
    assert await only_run(rig) == ended_as
    rig.model.script = [says("well")]
    assert rows(await rig.say(agent.id, "how are you?"))[-1].text == "well"


async def test_a_run_that_has_ended_makes_no_progress(rig):
    agent, database = await make(rig), rig.kelpie.world.database
    await rig.say(agent.id, "hi")
    run = await only_run(rig)
    with pytest.raises(RunOver):
        await database.transact(lambda tx: run_rows.progress(tx, replace(run, step_count=run.step_count + 1)))
    assert await only_run(rig) == run


async def test_a_run_that_failed_in_its_lane_can_be_handed_to_it_again(rig, monkeypatch):
    agent, queue = await make(rig), rig.kelpie.runtime.run_queue
    tried = []

    async def fails(_stored, _conversation, run_id):
        tried.append(run_id)
        raise StorageError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(StoredRuns, "play", fails)
        accepted = await behind(rig, agent.id, "go")
        await until(lambda: _true(bool(tried)))
        waiting = StoredRun(accepted.id, agent.id, None)
        await until(lambda: _true(accepted.id not in queue._held))
    queue.submit(waiting)
    await until(lambda: run_is(rig, RunStatus.completed))


async def _true(found):
    return found
