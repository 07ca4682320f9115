"""Answers to waiting calls while something else happens to them: a crash, a disk that fails, a repair, a new rule."""

import asyncio
import json

import pytest

from kelpie.agent.journal import step_commit
from kelpie.agent.turn.activation import Activation
from kelpie.core.agents.agent import ToolRule
from kelpie.core.conversations.messages import ApprovalDecision
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import StorageError
from kelpie.core.tools.tools import NewTool
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.test_approvals import (
    APPEND,
    SOURCE,
    answer,
    append,
    history,
    make,
    pending,
    returned,
    value,
    well_formed,
)
from tests.agent.test_recovery import until

YES = (ApprovalDecision("call_0", True), ApprovalDecision("call_1", True))


class Workshop(Rig):
    """A rig whose tool outside waits until it is let go."""

    def __init__(self, path) -> None:
        super().__init__(path, external=self._run)
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def _run(self, tool, call, arguments):
        self.began.set()
        await self.go.wait()
        return Outcome("done")


@pytest.fixture
async def workshop(tmp_path):
    made = await Workshop(tmp_path / "kelpie.db").start()
    await made.kelpie.api().tools.create(NewTool(SOURCE))
    yield made
    await made.stop()


async def asked_for_both(rig):
    """An agent that waits for a tool outside and, after it, for one that runs inside the commit."""
    agent = await make(rig, rules=(APPEND, "outside"), tools=(APPEND, "outside"))
    rig.model.script = [says("", ("outside", {"x": "a"}), append())]
    await rig.say(agent.id, "go")
    return agent


async def begin(rig, agent_id, *answers):
    task = asyncio.ensure_future(answer(rig, agent_id, *answers))
    async with asyncio.timeout(20):
        await rig.began.wait()
    return task


async def test_what_was_approved_after_a_call_that_a_crash_cut_off_runs_as_it_was_approved(workshop):
    agent = await asked_for_both(workshop)
    changed = json.dumps({"label": "human", "content": "juice"})
    answers = (ApprovalDecision("call_0", True), ApprovalDecision("call_1", True, arguments=changed))
    task = await begin(workshop, agent.id, *answers)
    workshop.model.script = [says("went on")]
    await workshop.stop()
    task.cancel()
    await workshop.start()
    await until(lambda: over(workshop))
    results = {r.call_id: r for row in await history(workshop, agent.id) for r in row.tool_returns}
    assert not results["call_0"].ok and "Interrupted" in results["call_0"].text
    assert results["call_1"].ok and await value(workshop, agent.id) == "Bob\njuice"
    await well_formed(workshop, agent.id)


async def over(rig):
    return not await rig.kelpie.api().runs.page(RunQuery(active=True))


async def test_a_repair_leaves_the_calls_of_an_earlier_run_to_the_turn_that_works_on_them(workshop):
    agent = await asked_for_both(workshop)
    task = await begin(workshop, agent.id, *YES)
    assert await workshop.kelpie.api().histories.repair(agent.id) == []
    workshop.go.set()
    assert [(r.call_id, r.ok) for r in returned(await task)] == [("call_0", True), ("call_1", True)]
    await well_formed(workshop, agent.id)


async def test_a_repair_leaves_the_calls_of_a_turn_to_it(workshop):
    agent = await make(workshop, rules=(), tools=("outside",))
    workshop.model.script = [says("", ("outside", {"x": "a"})), says("done")]
    task = asyncio.ensure_future(workshop.say(agent.id, "go"))
    async with asyncio.timeout(20):
        await workshop.began.wait()
    assert await workshop.kelpie.api().histories.repair(agent.id) == []
    workshop.go.set()
    assert rows(await task)[-1].text == "done"
    await well_formed(workshop, agent.id)


async def test_a_call_that_needs_approval_only_now_is_not_run_with_the_answer_to_another(rig):
    agent = await make(rig, tools=(APPEND, "core_memory_replace"))
    replaces = ("core_memory_replace", {"label": "human", "old_content": "Bob", "new_content": "Eve"})
    rig.model.script = [says("", append(), replaces)]
    await rig.say(agent.id, "go")
    rules = tuple(ToolRule("requires_approval", name) for name in (APPEND, "core_memory_replace"))
    await rig.kelpie.api().agents.update(agent.id, {"tool_rules": rules})
    results = returned(await answer(rig, agent.id, ApprovalDecision("call_0", True)))
    assert [(result.call_id, result.ok) for result in results] == [("call_0", True), ("call_1", False)]
    assert "needs approval" in results[1].text and await value(rig, agent.id) == "Bob\ntea"
    await well_formed(rig, agent.id)


@pytest.fixture
def broken(monkeypatch):
    """Kinds of commits that fail."""
    kinds = set[str]()
    write = step_commit._write

    def fails(tx, position, loaded, entry):
        if entry.kind in kinds:
            raise StorageError("the disk is away")
        return write(tx, position, loaded, entry)

    monkeypatch.setattr(step_commit, "_write", fails)
    return kinds


async def test_a_run_whose_answers_were_not_stored_is_cancelled_and_the_calls_wait_on(rig, broken):
    agent = await make(rig)
    rig.model.script = [says("", append(), append("coffee"))]
    await rig.say(agent.id, "go")
    broken.add("answers")
    failed = await answer(rig, agent.id, *YES)
    broken.clear()
    assert isinstance(ended(failed).error, StorageError)
    run_id = ended(failed).run_id
    assert await rig.kelpie.api().cancellations.of_agent(agent.id, [run_id]) == {run_id: "cancelled"}
    assert (await rig.kelpie.api().runs.get(run_id)).status is RunStatus.cancelled
    assert [r for row in await history(rig, agent.id) for r in row.tool_returns] == []
    assert await pending(rig, agent.id) is not None and await value(rig, agent.id) == "Bob"
    rig.model.script = [says("both")]
    assert [r.ok for r in returned(await answer(rig, agent.id, *YES))] == [True, True]
    assert await value(rig, agent.id) == "Bob\ntea\ncoffee"
    await well_formed(rig, agent.id)


async def test_a_turn_that_was_told_as_failed_leaves_no_call_open(workshop, broken):
    """Its agent closes it when it is next loaded, and says that nobody knows how far the call came."""
    agent = await make(workshop, rules=(), tools=("outside",))
    workshop.model.script = [says("", ("outside", {"x": "a"}))]
    workshop.go.set()
    broken.add("result")
    failed = ended(await workshop.say(agent.id, "go"))
    broken.clear()
    assert isinstance(failed.error, StorageError)
    await workshop.kelpie.runtime.dispatcher.release(agent.id)
    await workshop.kelpie.runtime.dispatcher.submit(agent.id, "another lane", nothing)
    (result,) = [r for row in await history(workshop, agent.id) for r in row.tool_returns]
    assert not result.ok and "Interrupted" in result.text
    run = await workshop.kelpie.api().runs.get(failed.run_id)
    assert run.status is RunStatus.failed and run.stop_reason is StopReason.error
    assert await workshop.kelpie.api().histories.repair(agent.id) == [], "there is nothing to mend"
    await well_formed(workshop, agent.id)


async def nothing(_: Activation) -> None:
    return
