"""Calls that wait only so long: denied when their time is over, for everybody, and never in somebody else's way."""

from kelpie.agent.maintenance import approval_expiry as expiring
from kelpie.agent.maintenance.approval_expiry import ApprovalExpiry, denial_of
from kelpie.core.conversations.messages import Role
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from tests.agent.conftest import Rig, rows, says
from tests.agent.test_approvals import append, history, make, pending, well_formed
from tests.agent.test_recovery import until


def expiry(rig):
    return ApprovalExpiry(rig.kelpie.world, rig.kelpie.runtime.live_agents, 60, 50)


async def make_old(rig, agent_id, at=2):
    statement = "UPDATE approvals SET requested_at = ? WHERE agent_id = ?"
    await rig.kelpie.world.database.transact(lambda tx: tx.exec_driver_sql(statement, (at, agent_id)))


async def test_what_nobody_answers_is_denied_in_time_and_the_turn_goes_on(tmp_path):
    rig = await Rig(tmp_path / "kelpie.db", approval_s=60).start()
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await expiry(rig).deny_expired()
    assert await pending(rig, agent.id) is not None, "not yet"
    rig.model.script = [says("then not")]
    await make_old(rig, agent.id)
    await expiry(rig).deny_expired()
    await until(lambda: _settled(rig, agent.id))
    said = await history(rig, agent.id)
    assert said[-1].text == "then not" and "not answered within 60 seconds" in said[-2].tool_returns[0].text
    await well_formed(rig, agent.id)
    await rig.stop()


async def test_a_denial_that_came_to_nothing_ends_the_wait_for_the_live_agent_too(rig):
    agent = await make(rig)
    rig.model.script = [says("", append())]
    await rig.say(agent.id, "go")
    await make_old(rig, agent.id)
    waiting = await pending(rig, agent.id)
    denial = Run(denial_of(waiting.id), agent.id, RunStatus.cancelled, 1, stop_reason=StopReason.cancelled)
    given = RunInput((), 1)
    await rig.kelpie.world.database.transact(lambda tx: runs.open_run(tx, denial, agent.organization_id, given, NOBODY))
    await expiry(rig).deny_expired()
    assert await pending(rig, agent.id) is None
    rig.model.script = [says("well")]
    assert rows(await rig.say(agent.id, "how are you?"))[-1].text == "well"
    await well_formed(rig, agent.id)


async def test_what_waits_for_stopped_agents_keeps_nobody_from_being_denied(rig, monkeypatch):
    monkeypatch.setattr(expiring, "AT_ONCE", 1)
    stopped, other = await make(rig), await make(rig)
    for agent in (stopped, other):
        rig.model.script = [says("", append())]
        await rig.say(agent.id, "go")
    await make_old(rig, stopped.id, 1)
    await make_old(rig, other.id)
    await rig.kelpie.api().agents.stop(stopped.id)
    rig.model.script = [says("then not")]
    for _ in range(2):
        await expiry(rig).deny_expired()
    await until(lambda: _settled(rig, other.id))
    assert await pending(rig, stopped.id) is not None and await pending(rig, other.id) is None


async def _settled(rig, agent_id):
    return (await history(rig, agent_id))[-1].role is Role.assistant
