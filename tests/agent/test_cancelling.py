"""Cancelling, in every phase of a turn: what is broken off, what stays in the history, and what the answer means."""

import asyncio

import pytest

from kelpie.agent.events.cancellation import Cancellation, Cancelled
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import NewAgent, ToolRule
from kelpie.core.conversations.messages import ApprovalDecision, MessageQuery, NewMessage, Role, Text
from kelpie.core.conversations.runs import RunQuery, RunStatus, StepQuery, StepStatus, StopReason
from kelpie.core.errors import Conflict, DiskFull, InvalidInput, NotFound, StorageError
from kelpie.core.ids import AgentId, RunId
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.permissions.quotas import Quota
from kelpie.core.tools.tools import NewTool
from kelpie.storage.runs import journal_keys
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.test_recovery import until

SOURCE = '''
def outside(mark: str) -> str:
    """Does something elsewhere.

    Args:
        mark (str): what
    """
    return mark
'''
WAIT_S = 60.0


class Shop(Rig):
    """A rig with a tool whose calls can be held, and that remembers which of them were broken off."""

    def __init__(self, path) -> None:
        super().__init__(path, external=self._run)
        self.began, self.broken, self.done = [], [], []
        self.holding, self.let_go = asyncio.Event(), asyncio.Event()
        self.stubborn = False

    async def _run(self, tool, call, arguments):
        mark = arguments["mark"]
        self.began.append(mark)
        if mark == "hold":
            self.holding.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.broken.append(mark)
                if not self.stubborn:
                    raise
        self.done.append(mark)
        return Outcome("done")

    async def agent(self):
        made = await self.kelpie.api().agents.create(
            NewAgent(tools=("outside",), memory_blocks=(NewBlock("human", ""),), timezone="UTC")
        )
        return made.agent.id

    async def send(self, agent_id, text="go", **options):
        return await self.kelpie.api().sending.send(
            agent_id, SendRequest((NewMessage(Role.user, (Text(text),)),), **options)
        )

    async def cancel(self, agent_id, run_ids=None):
        async with asyncio.timeout(WAIT_S):
            return await self.kelpie.api().cancellations.of_agent(agent_id, run_ids)

    async def run(self, run_id):
        return await self.kelpie.api().runs.get(RunId(run_id))

    async def history(self, agent_id):
        return (await self.kelpie.api().histories.messages(agent_id, MessageQuery()))[1:]


@pytest.fixture
async def shop(tmp_path):
    made = await Shop(tmp_path / "kelpie.db").start()
    await made.kelpie.api().tools.create(NewTool(SOURCE))
    yield made
    await made.stop()


async def heard(turn):
    async with asyncio.timeout(WAIT_S):
        return [event async for event in turn.events()]


async def asked(shop, number=1):
    async def was_asked():
        return len(shop.model.requests) >= number

    await until(was_asked)


def call(*marks):
    return says("", *(("outside", {"mark": mark}) for mark in marks))


async def answers(shop, agent_id):
    """That the agent is not bricked: a plain message is answered and the history before it is sound."""
    shop.model.hold, shop.model.script = None, [says("still here")]
    events = await shop.say(agent_id, "hello")
    assert ended(events).stop_reason is StopReason.end_turn and rows(events)[-1].text == "still here"
    asked_for = shop.model.requests[-1].messages
    calls = [c.id for entry in asked_for for c in entry.message.tool_calls]
    results = [r.call_id for entry in asked_for for r in entry.message.tool_returns]
    assert calls == results


# --- phases ----------------------------------------------------------------------------------------------------------


async def test_during_the_first_model_call_nothing_enters_the_history(shop):
    agent_id = await shop.agent()
    shop.model.hold = asyncio.Event()
    turn = await shop.send(agent_id)
    await asked(shop)
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    end = ended(await heard(turn))
    assert (end.stop_reason, end.error, end.step_count) == (StopReason.cancelled, None, 0)
    run = await shop.run(turn.run_id)
    assert (run.status, run.stop_reason) == (RunStatus.cancelled, StopReason.cancelled) and run.completed_at
    [step] = await shop.kelpie.api().runs.steps(StepQuery(run_id=run.id))
    assert step.status is StepStatus.cancelled
    assert await shop.history(agent_id) == []
    await answers(shop, agent_id)


async def test_during_a_later_model_call_what_was_committed_stays(shop):
    agent_id = await shop.agent()
    hold = asyncio.Event()

    def second(_):
        shop.model.hold = hold
        return call("a")

    shop.model.script = [second]
    turn = await shop.send(agent_id)
    await asked(shop, 2)
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    events = await heard(turn)
    assert ended(events).stop_reason is StopReason.cancelled and ended(events).usage.total_tokens == 15
    assert [m.role for m in await shop.history(agent_id)] == [Role.user, Role.assistant, Role.tool]
    assert [row.id for row in rows(events)] == [m.id for m in (await shop.history(agent_id))[1:]]
    await answers(shop, agent_id)


async def test_during_a_tool_call_its_task_is_broken_off_and_every_call_has_a_result(shop):
    agent_id = await shop.agent()
    shop.model.script = [call("a", "hold", "b")]
    turn = await shop.send(agent_id)
    await asyncio.wait_for(shop.holding.wait(), WAIT_S)
    assert await shop.cancel(agent_id, [turn.run_id]) == {turn.run_id: "cancelled"}
    assert shop.broken == ["hold"] and shop.done == ["a"] and shop.began == ["a", "hold"]
    events = await heard(turn)
    results = [r for row in rows(events) for r in row.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", True), ("call_1", False), ("call_2", False)]
    assert all("cancelled" in r.text for r in results[1:])
    stored = [r for m in await shop.history(agent_id) for r in m.tool_returns]
    assert stored == results, "the stream and the history agree"
    assert (await shop.run(turn.run_id)).status is RunStatus.cancelled
    await answers(shop, agent_id)


async def test_a_call_that_was_broken_off_counts_against_the_limit(shop):
    agent_id = await shop.agent()
    await shop.kelpie.api().agents.update(agent_id, {"quota": Quota(tool_calls=2)})
    shop.model.script = [call("a"), says("done")]
    await shop.say(agent_id, "go")
    shop.model.script = [call("hold")]
    turn = await shop.send(agent_id)
    await asyncio.wait_for(shop.holding.wait(), WAIT_S)
    await shop.cancel(agent_id, [turn.run_id])
    shop.model.script = [call("b"), says("done")]
    await shop.say(agent_id, "once more")
    assert shop.began == ["a", "hold"], "two calls had run in this hour"


async def test_a_tool_that_finished_all_the_same_is_recorded_as_it_was_and_ends_the_turn(shop):
    agent_id = await shop.agent()
    shop.stubborn, shop.model.script = True, [call("hold"), says("never asked")]
    turn = await shop.send(agent_id)
    await asyncio.wait_for(shop.holding.wait(), WAIT_S)
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    events = await heard(turn)
    assert ended(events).stop_reason is StopReason.cancelled and len(shop.model.requests) == 1
    assert [r.ok for m in await shop.history(agent_id) for r in m.tool_returns] == [True]
    assert (await shop.run(turn.run_id)).status is RunStatus.cancelled
    await answers(shop, agent_id)


async def test_what_waits_in_the_mailbox_is_cancelled_at_once_and_recorded(shop):
    agent_id = await shop.agent()
    shop.model.hold = asyncio.Event()
    first, second, third = [await shop.send(agent_id, text) for text in ("one", "two", "three")]
    await asked(shop)
    assert await shop.cancel(agent_id, [second.run_id]) == {second.run_id: "cancelled"}
    events = await heard(second)  # while the first still runs
    assert ended(events).stop_reason is StopReason.cancelled and not rows(events)
    run = await shop.run(second.run_id)
    assert (run.status, run.step_count) == (RunStatus.cancelled, 0)
    shop.model.hold.set()
    for turn in (first, third):
        assert ended(await heard(turn)).stop_reason is StopReason.end_turn
    assert [m.text for m in await shop.history(agent_id) if m.role is Role.user] == ["one", "three"]
    assert len(shop.model.requests) == 2


async def test_all_of_an_agent_at_once(shop):
    agent_id = await shop.agent()
    shop.model.hold = asyncio.Event()
    turns = [await shop.send(agent_id, text) for text in ("one", "two", "three")]
    await asked(shop)
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled" for turn in turns}
    for turn in turns:
        assert ended(await heard(turn)).stop_reason is StopReason.cancelled
    found = await shop.kelpie.api().runs.page(RunQuery())
    assert {run.id: run.status for run in found} == {turn.run_id: RunStatus.cancelled for turn in turns}
    assert len(shop.model.requests) == 1 and await shop.history(agent_id) == []
    await answers(shop, agent_id)


async def test_a_turn_that_a_crash_left_behind_is_ended_where_it_lies(shop):
    agent_id = await shop.agent()
    shop.model.script = [call("a", "hold")]
    turn = await shop.send(agent_id)
    await asyncio.wait_for(shop.holding.wait(), WAIT_S)
    shop.kelpie.runtime.active_turns._works.clear()  # as if another process had died in the middle of it
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    results = [r for m in await shop.history(agent_id) for r in m.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", True), ("call_1", False)]
    shop.let_go.set()  # the one who worked on it comes back too late
    assert ended(await heard(turn)).stop_reason is StopReason.cancelled
    assert [r for m in await shop.history(agent_id) for r in m.tool_returns] == results
    assert (await shop.run(turn.run_id)).status is RunStatus.cancelled
    await answers(shop, agent_id)


async def test_racing_completion_one_of_the_two_wins_and_it_is_told_so(shop):
    agent_id = await shop.agent()
    for pauses in range(30):
        shop.model.script = [says("answer")]
        turn = await shop.send(agent_id, f"try {pauses}")
        for _ in range(pauses):
            await asyncio.sleep(0)
        assert await shop.cancel(agent_id, [turn.run_id]) == {turn.run_id: "cancelled"}
        end, run = ended(await heard(turn)), await shop.run(turn.run_id)
        assert run.stop_reason is end.stop_reason and end.error is None
        assert run.status in (RunStatus.completed, RunStatus.cancelled)
        said = [m.text for m in await shop.history(agent_id) if m.run_id == run.id]
        assert said == ([f"try {pauses}", "answer"] if run.status is RunStatus.completed else [])
    await answers(shop, agent_id)


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_what_is_over_is_cancelled_by_name_what_is_unknown_failed_and_nothing_a_conflict(shop):
    agent_id, other = await shop.agent(), await shop.agent()
    with pytest.raises(Conflict, match="No active runs to cancel"):
        await shop.cancel(agent_id)
    run_id = ended(await shop.say(agent_id, "hello")).run_id
    with pytest.raises(Conflict, match="No active runs to cancel"):
        await shop.cancel(agent_id)
    foreign, unknown = ended(await shop.say(other, "hello")).run_id, "run-00000000-0000-4000-8000-000000000001"
    assert await shop.cancel(agent_id, [unknown, run_id, foreign, "nonsense", run_id]) == {
        unknown: "failed", run_id: "cancelled", foreign: "failed", "nonsense": "failed",
    }  # fmt: skip
    assert await shop.cancel(agent_id, []) == {}
    assert (await shop.run(run_id)).status is RunStatus.completed, "what was done is not undone"
    with pytest.raises(NotFound):
        await shop.cancel(AgentId("agent-00000000-0000-4000-8000-000000000001"))


async def test_a_disk_that_fails_is_told_and_the_next_try_ends_it(shop, monkeypatch):
    agent_id = await shop.agent()
    shop.model.hold = asyncio.Event()
    turn = await shop.send(agent_id)
    await asked(shop)

    async def is_stored():
        return await shop.kelpie.api().runs.page(RunQuery(run_id=turn.run_id)) != []

    await until(is_stored)
    add = journal_keys.add

    def breaking(*arguments):
        raise DiskFull("no space left")

    monkeypatch.setattr(journal_keys, "add", breaking)
    transact = shop.kelpie.world.database.transact

    async def failing(_):
        raise DiskFull("no space left")

    monkeypatch.setattr(shop.kelpie.world.database, "transact", failing)
    with pytest.raises(StorageError):
        await shop.cancel(agent_id)
    monkeypatch.setattr(shop.kelpie.world.database, "transact", transact)
    monkeypatch.setattr(journal_keys, "add", add)
    assert isinstance(ended(await heard(turn)).error, DiskFull), "its own client hears that the end was not recorded"
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    assert (await shop.run(turn.run_id)).status in (RunStatus.cancelled, RunStatus.failed)
    await answers(shop, agent_id)


# --- the wish itself -------------------------------------------------------------------------------------------------


async def test_only_what_may_be_broken_off_is_and_only_once():
    wish, told = Cancellation(), []

    async def work():
        await asyncio.sleep(0)
        try:
            with wish.abortable():
                await asyncio.Event().wait()
        except Cancelled:
            told.append("broken off")
        await asyncio.sleep(0.001)
        told.append("went on to its end")

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    wish.request()
    wish.request()
    await task
    assert told == ["broken off", "went on to its end"]
    with pytest.raises(Cancelled), wish.abortable():
        told.append("never")
    with pytest.raises(Cancelled):
        wish.begin()
    assert not wish.has_begun and len(told) == 2


async def test_what_comes_after_a_block_is_not_broken_off_by_a_late_wish():
    """It is a commit, and whoever breaks it off does not know whether it is stored."""
    wish, told = Cancellation(), []

    async def work():
        with wish.abortable(asks=True):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        told.append("stored")

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0)
    wish.request()
    await task
    assert told == ["stored"] and wish.requested


async def test_a_wish_may_spare_tools_and_a_later_one_does_not():
    wish, told = Cancellation(), []

    async def work():
        with wish.abortable():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("broken off")
                raise

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    wish.request(spare_tools=True)
    await asyncio.sleep(0)
    assert told == [] and wish.requested
    wish.request()
    with pytest.raises(Cancelled):
        await task
    assert told == ["broken off"]


@pytest.mark.parametrize("first", ["wish", "server"])
async def test_a_server_that_stops_goes_before_the_wish(first):
    wish = Cancellation()

    async def work():
        with wish.abortable():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.001)
    for one in (wish.request, task.cancel) if first == "wish" else (task.cancel, wish.request):
        one()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- calls that wait, and runs in the background ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["agent", "run", "conversation"])
async def test_calls_that_wait_for_a_word_are_denied_and_the_agent_goes_on(shop, how):
    agent_id = await shop.agent()
    rules = (ToolRule("requires_approval", "outside"),)
    await shop.kelpie.api().agents.update(agent_id, {"tool_rules": rules})
    shop.model.script = [call("a", "b")]
    asker = ended(await shop.say(agent_id, "go"))
    assert asker.stop_reason is StopReason.requires_approval
    door = shop.kelpie.api().cancellations
    if how == "conversation":
        told = await door.of_default(agent_id)
    else:
        told = await door.of_agent(agent_id, [asker.run_id] if how == "run" else None)
    assert told == {asker.run_id: "cancelled"} and shop.began == []
    results = [r for m in await shop.history(agent_id) for r in m.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", False), ("call_1", False)]
    assert all("user cancelled" in r.text for r in results)
    assert (await shop.kelpie.api().agents.get(agent_id)).pending_approval is None
    turn = await shop.kelpie.api().sending.send(agent_id, SendRequest((), answers=(ApprovalDecision("call_0", True),)))
    assert isinstance(ended(await heard(turn)).error, InvalidInput), "nothing waits any more"
    with pytest.raises(Conflict, match="No active runs to cancel"):
        await door.of_default(agent_id)
    await answers(shop, agent_id)


@pytest.mark.parametrize("live", [True, False])
async def test_a_call_that_was_allowed_and_is_running_gets_its_result(shop, live):
    agent_id = await shop.agent()
    await shop.kelpie.api().agents.update(agent_id, {"tool_rules": (ToolRule("requires_approval", "outside"),)})
    shop.model.script = [call("a", "hold")]
    await shop.say(agent_id, "go")
    allowed = (ApprovalDecision("call_0", True), ApprovalDecision("call_1", True))
    turn = await shop.kelpie.api().sending.send(agent_id, SendRequest((), answers=allowed))
    await asyncio.wait_for(shop.holding.wait(), WAIT_S)
    if not live:
        shop.kelpie.runtime.active_turns._works.clear()
    assert await shop.cancel(agent_id) == {turn.run_id: "cancelled"}
    shop.let_go.set()
    assert ended(await heard(turn)).stop_reason is StopReason.cancelled
    results = [r for m in await shop.history(agent_id) for r in m.tool_returns]
    assert [(r.call_id, r.ok) for r in results] == [("call_0", True), ("call_1", False)]
    await shop.kelpie.api().agents.update(agent_id, {"tool_rules": ()})
    await answers(shop, agent_id)


async def in_background(shop, agent_id, text):
    send = SendRequest((NewMessage(Role.user, (Text(text),)),))
    return (await shop.kelpie.api().background_runs.accept(agent_id, send)).id


async def followed(shop, run_id):
    async with asyncio.timeout(WAIT_S):
        return [event async for event in shop.kelpie.api().background_runs.follow(run_id)]


async def test_background_runs_end_in_order_whether_they_wait_or_run(shop):
    agent_id = await shop.agent()
    shop.model.hold = asyncio.Event()
    first = await in_background(shop, agent_id, "one")
    await asked(shop)
    second = await in_background(shop, agent_id, "two")
    assert (await shop.run(second)).status is RunStatus.created
    assert await shop.cancel(agent_id, [second]) == {second: "cancelled"}
    assert ended(await followed(shop, second)).stop_reason is StopReason.cancelled
    assert (await shop.run(first)).status is RunStatus.running
    assert await shop.cancel(agent_id) == {first: "cancelled"}
    assert ended(await followed(shop, first)).stop_reason is StopReason.cancelled
    assert {(await shop.run(run_id)).status for run_id in (first, second)} == {RunStatus.cancelled}
    assert await shop.history(agent_id) == []
    await answers(shop, agent_id)
    assert len(shop.model.requests) == 2, "what was cancelled is never taken up"
