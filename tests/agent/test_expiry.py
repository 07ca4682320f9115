"""Calls that wait only so long: denied when their time is over, for everybody, and never in somebody else's way."""

from kelpie.agent.maintenance import approval_expiry as expiring
from kelpie.agent.maintenance.approval_expiry import ApprovalExpiry, denial_of
from kelpie.core.conversations.messages import Role
from kelpie.core.conversations.runs import Run, RunStatus, StopReason
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from tests.agent.conftest import House, rows, says
from tests.agent.test_approvals import append, history, make, pending, well_formed
from tests.agent.test_recovery import until


def expiry(house):
    return ApprovalExpiry(house.kelpie.world, house.kelpie.runtime.live_agents, 60, 50)


async def make_old(house, agent_id, at=2):
    statement = "UPDATE approvals SET requested_at = ? WHERE agent_id = ?"
    await house.kelpie.world.database.transact(lambda tx: tx.exec_driver_sql(statement, (at, agent_id)))


async def test_what_nobody_answers_is_denied_in_time_and_the_turn_goes_on(tmp_path):
    house = await House(tmp_path / "kelpie.db", approval_s=60).start()
    agent = await make(house)
    house.model.script = [says("", append())]
    await house.say(agent.id, "go")
    await expiry(house).deny_expired()
    assert await pending(house, agent.id) is not None, "not yet"
    house.model.script = [says("then not")]
    await make_old(house, agent.id)
    await expiry(house).deny_expired()
    await until(lambda: _settled(house, agent.id))
    said = await history(house, agent.id)
    assert said[-1].text == "then not" and "not answered within 60 seconds" in said[-2].tool_returns[0].text
    await well_formed(house, agent.id)
    await house.stop()


async def test_a_denial_that_came_to_nothing_ends_the_wait_for_the_live_agent_too(house):
    agent = await make(house)
    house.model.script = [says("", append())]
    await house.say(agent.id, "go")
    await make_old(house, agent.id)
    waiting = await pending(house, agent.id)
    denial = Run(denial_of(waiting.id), agent.id, RunStatus.cancelled, 1, stop_reason=StopReason.cancelled)
    given = RunInput((), 1)
    await house.kelpie.world.database.transact(
        lambda tx: runs.open_run(tx, denial, agent.organization_id, given, NOBODY)
    )
    await expiry(house).deny_expired()
    assert await pending(house, agent.id) is None
    house.model.script = [says("well")]
    assert rows(await house.say(agent.id, "how are you?"))[-1].text == "well"
    await well_formed(house, agent.id)


async def test_what_waits_for_stopped_agents_keeps_nobody_from_being_denied(house, monkeypatch):
    monkeypatch.setattr(expiring, "AT_ONCE", 1)
    stopped, other = await make(house), await make(house)
    for agent in (stopped, other):
        house.model.script = [says("", append())]
        await house.say(agent.id, "go")
    await make_old(house, stopped.id, 1)
    await make_old(house, other.id)
    await house.kelpie.api().agents.stop(stopped.id)
    house.model.script = [says("then not")]
    for _ in range(2):
        await expiry(house).deny_expired()
    await until(lambda: _settled(house, other.id))
    assert await pending(house, stopped.id) is not None and await pending(house, other.id) is None


async def _settled(house, agent_id):
    return (await history(house, agent_id))[-1].role is Role.assistant
