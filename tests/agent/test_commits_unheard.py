"""Commits that came through although nobody heard of it: the turn goes on, or is over, as if nothing had happened."""

from types import SimpleNamespace
from typing import Any

import pytest

from kelpie.agent.maintenance.recovery import Recovery
from kelpie.core.conversations.messages import ApprovalDecision
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import CommitUnknown
from kelpie.core.tools.tools import NewTool
from kelpie.storage.runs import journal_keys
from kelpie.tools.calls.interface import Outcome
from kelpie.world.sqlite.database import SqliteDatabase
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.multi_agent_rig import MultiAgentRig
from tests.agent.test_approvals import APPEND, SOURCE, answer, append, history, make, pending, value, well_formed
from tests.agent.test_companions import FINISH, settled, sleepy


@pytest.fixture
async def workshop(tmp_path):
    async def outside(_tool, _call, arguments):
        return Outcome(f"done {arguments['x']}")

    made = await Rig(tmp_path / "kelpie.db", external=outside).start()
    await made.kelpie.api().tools.create(NewTool(SOURCE))
    yield made
    await made.stop()


@pytest.fixture
def unheard(monkeypatch):
    """Kinds of commits whose answer is lost once, and the kinds that were."""
    kinds, last, lost = set[str](), list[str](), list[str]()
    add, transact = journal_keys.add, SqliteDatabase.transact

    def noted(tx, claim, turn_id, step, kind, at):
        last.append(kind)
        add(tx, claim, turn_id, step, kind, at)

    async def told(self, fn):
        last.clear()
        result = await transact(self, fn)
        if last and last[-1] in kinds:
            kinds.remove(last[-1])
            lost.append(last[-1])
            raise CommitUnknown("the answer was lost")
        return result

    monkeypatch.setattr(journal_keys, "add", noted)
    monkeypatch.setattr(SqliteDatabase, "transact", told)
    return kinds, lost


@pytest.mark.parametrize("kind", ["open", "reply", "result", "step"])
async def test_a_turn_whose_commit_was_not_heard_of_is_what_it_would_have_been(workshop, unheard, kind):
    agent = await make(workshop, rules=(), tools=(APPEND, "outside"))
    workshop.model.script = [says("", ("outside", {"x": "a"})), says("", append()), says("done")]
    unheard[0].add(kind)
    events = await workshop.say(agent.id, "go")
    assert unheard[1] == [kind] and ended(events).stop_reason is StopReason.end_turn
    assert [row.said for row in rows(events) if row.said] == ["done"] and len(workshop.model.requests) == 3
    assert await value(workshop, agent.id) == "Bob\ntea"
    (run,) = await workshop.kelpie.api().runs.page(RunQuery())
    assert (run.stop_reason, run.step_count, run.usage.total_tokens) == (StopReason.end_turn, 3, 45)
    await well_formed(workshop, agent.id)


async def test_an_answer_whose_commit_was_not_heard_of_is_the_end(workshop, unheard):
    agent = await make(workshop, rules=())
    workshop.model.script = [says("done"), says("not asked for")]
    unheard[0].add("step")
    events = await workshop.say(agent.id, "go")
    assert [row.said for row in rows(events)] == ["done"] and ended(events).stop_reason is StopReason.end_turn
    assert len(workshop.model.requests) == 1, "the turn is over"
    await well_formed(workshop, agent.id)


@pytest.mark.parametrize("kind", ["ask", "answers"])
async def test_calls_that_wait_are_known_and_answered_once_although_it_was_not_heard_of(workshop, unheard, kind):
    agent = await make(workshop)
    unheard[0].add(kind)
    workshop.model.script = [says("", append(), append("coffee"))]
    assert ended(await workshop.say(agent.id, "go")).stop_reason is StopReason.requires_approval
    part = await answer(workshop, agent.id, ApprovalDecision("call_1", True), partial=True)
    assert ended(part).stop_reason is StopReason.requires_approval and await value(workshop, agent.id) == "Bob"
    workshop.model.script = [says("both")]
    events = await answer(workshop, agent.id, ApprovalDecision("call_0", True))
    assert unheard[1] == [kind] and rows(events)[-1].said == "both"
    assert await pending(workshop, agent.id) is None and await value(workshop, agent.id) == "Bob\ntea\ncoffee"
    answers = [one.call_id for row in await history(workshop, agent.id) for one in row.answers]
    assert sorted(answers) == ["call_0", "call_1"]
    await well_formed(workshop, agent.id)


async def test_the_work_of_a_companion_begins_although_nobody_heard_of_its_commit(tmp_path, unheard):
    rig = await MultiAgentRig(tmp_path / "kelpie.db").start()
    main, aide, _ = await sleepy(rig, every=1)
    rig.script(main, says("", ("send_message", {"message": "hello"})))
    rig.script(aide, FINISH)
    unheard[0].add("step")
    end = ended(await rig.say(main, "hi"))
    (run,) = await settled(rig, aide, 1)
    await rig.stop()
    assert unheard[1] == ["step"] and end.run_ids == (run.id,) and run.status is RunStatus.completed


def test_after_an_unknown_commit_agents_and_callers_are_read_again():
    told = []
    live_agents: Any = SimpleNamespace(forget_all_contexts=lambda: told.append("agents"))
    authenticator: Any = SimpleNamespace(forget=lambda: told.append("callers"))
    nothing: Any = SimpleNamespace()
    Recovery(nothing, nothing, nothing, live_agents, authenticator).reread_everything()
    assert told == ["agents", "callers"]
