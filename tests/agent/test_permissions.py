"""Permissions and limits in a turn: what may not be run is not, the model is told, every call is recorded, and what is
changed holds for the very next call."""

import asyncio

import pytest

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import AgentType, NewAgent, ToolRule
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import ToolError
from kelpie.core.permissions.call_records import CallQuery
from kelpie.core.permissions.policies import Policy
from kelpie.core.permissions.quotas import Quota
from kelpie.core.permissions.tool_permissions import ToolPatterns
from kelpie.core.tools.confinement import MEGABYTE
from kelpie.core.tools.tools import NewTool
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says

SOURCE = '''
def {name}(x: str) -> str:
    """Does something outside.

    Args:
        x (str): anything
    """
    return x
'''


class Workshop(Rig):
    """Its tools run outside, take what `cost` says, and can be held up."""

    def __init__(self, path, **settings) -> None:
        super().__init__(path, external=self._run, **settings)
        self.ran: list[str] = []
        self.contexts = []
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.cost = 0

    async def _run(self, tool, context, arguments):
        self.ran.append(f"{tool.name}:{arguments['x']}")
        self.contexts.append(context)
        self.begun.set()
        if self.hold is not None:
            async with asyncio.timeout(10):
                await self.hold.wait()
        if arguments["x"] == "break":
            raise ToolError("it broke", cpu_us=self.cost, memory_peak_bytes=1)
        return Outcome("done", cpu_us=self.cost, memory_peak_bytes=3 * MEGABYTE)

    async def make(self, *names: str, **fields) -> str:
        ids = [(await self.kelpie.api().tools.create(NewTool(source_code=SOURCE.format(name=n)))).id for n in names]
        return (await self.kelpie.api().agents.create(NewAgent(tool_ids=tuple(ids), **fields))).agent.id

    @property
    def permissions(self):
        return self.kelpie.api().permissions

    async def calls(self, agent_id):
        found = await self.permissions.calls(CallQuery(), agent_id)
        return [(call.name, call.outcome.value) for call in reversed(found)]


@pytest.fixture
async def shop(tmp_path):
    made = await Workshop(tmp_path / "kelpie.db").start()
    yield made
    await made.stop()


def results(events):
    return [result.text for row in rows(events) for result in row.tool_returns]


async def test_what_an_agent_may_not_use_is_refused_told_and_recorded(shop: Workshop):
    agent_id = await shop.make("fine", "bad", permits=ToolPatterns(None, ("bad", "memory_*")))
    calls = ("bad", {"x": "1"}), ("memory_insert", {"label": "human", "new_string": "x"}), ("fine", {"x": "2"})
    shop.model.script = [says("", *calls), says("well")]
    events = await shop.say(agent_id, "go")
    assert shop.ran == ["fine:2"]
    told = results(events)
    assert "'bad' was not run: this agent may not use it" in told[0] and "'bad'" in told[0]
    assert "memory_*" in told[1] and told[2] == "done"
    assert ended(events).stop_reason is StopReason.end_turn
    assert await shop.calls(agent_id) == [
        ("bad", "refused"),
        ("memory_insert", "refused"),
        ("fine", "success"),
    ]
    offered = [schema.name for schema in shop.model.requests[0].tools]
    assert "fine" in offered and "bad" not in offered and "memory_insert" not in offered


async def test_settings_and_policy_cannot_be_widened(tmp_path):
    shop = await Workshop(tmp_path / "kelpie.db", tools_deny=("bad",)).start()
    agent_id = await shop.make("bad", "worse", permits=ToolPatterns(("*",)))
    await shop.permissions.set_policy(Policy(ToolPatterns(None, ("worse",))))
    shop.model.script = [says("", ("bad", {"x": "1"}), ("worse", {"x": "2"})), says("well")]
    told = results(await shop.say(agent_id, "go"))
    assert "settings of this server" in told[0] and "policy of this agent's organization" in told[1]
    assert shop.ran == []
    await shop.stop()
    shop = await shop.start()  # the policy is kept, the settings are the operator's
    shop.model.script = [says("", ("worse", {"x": "3"})), says("well")]
    assert "policy" in results(await shop.say(agent_id, "again"))[0]
    await shop.stop()


async def test_a_change_during_the_model_call_holds_for_its_calls(shop: Workshop):
    agent_id = await shop.make("bad")
    shop.model.hold = asyncio.Event()
    shop.model.script = [says("", ("bad", {"x": "1"}), ("core_memory_append", {})), says("well")]
    turn = await shop.kelpie.api().sending.send(agent_id, SendRequest((NewMessage(Role.user, (Text("go"),)),)))
    while not shop.model.requests:  # noqa: ASYNC110 - the model is asked before the policy changes
        await asyncio.sleep(0.01)
    await shop.permissions.set_policy(Policy(ToolPatterns(None, ("kind:custom",))))
    shop.model.hold.set()
    events = [event async for event in turn.events()]
    assert "policy" in results(events)[0] and shop.ran == []
    await shop.permissions.set_policy(Policy())
    shop.model.script = [says("", ("bad", {"x": "2"})), says("well")]
    assert results(await shop.say(agent_id, "again")) == ["done"] and shop.ran == ["bad:2"]


async def test_a_change_during_a_call_holds_for_the_next_one_of_the_reply(shop: Workshop):
    agent_id = await shop.make("bad")
    shop.hold = asyncio.Event()
    shop.model.script = [says("", ("bad", {"x": "1"}), ("bad", {"x": "2"})), says("well")]
    turn = await shop.kelpie.api().sending.send(agent_id, SendRequest((NewMessage(Role.user, (Text("go"),)),)))
    async with asyncio.timeout(10):
        await shop.begun.wait()
    await shop.kelpie.api().agents.update(agent_id, {"permits": ToolPatterns((), ())})
    shop.hold.set()
    events = [event async for event in turn.events()]
    assert shop.ran == ["bad:1"]
    assert results(events)[0] == "done" and "may not use it" in results(events)[1]
    assert await shop.calls(agent_id) == [("bad", "success"), ("bad", "refused")]
    assert ended(events).stop_reason is StopReason.end_turn


async def test_a_rule_that_asks_for_what_is_forbidden_does_not_hold_the_agent_up(shop: Workshop):
    rules = (ToolRule("required_before_exit", "bad"), ToolRule("run_first", "bad"))
    agent_id = await shop.make("bad", tool_rules=rules, permits=ToolPatterns(None, ("bad",)))
    assert ended(await shop.say(agent_id, "hi")).stop_reason is StopReason.end_turn
    assert len(shop.model.requests) == 1


async def test_an_agent_that_may_nothing_still_speaks(shop: Workshop):
    agent_id = await shop.make(
        agent_type=AgentType.memgpt_agent, permits=ToolPatterns((), ("*",)), quota=Quota(0, None, 0)
    )
    shop.model.script = [says("", ("send_message", {"message": "here I am", "thinking": ""}))]
    events = await shop.say(agent_id, "hi")
    assert ended(events).stop_reason is StopReason.end_turn
    assert await shop.calls(agent_id) == [("send_message", "success")]
    assert (await shop.permissions.limits(agent_id)).used.tool_calls == 0


async def test_calls_are_counted_by_the_hour_and_over_the_limit_refused(shop: Workshop):
    agent_id = await shop.make("fine", quota=Quota(tool_calls=3))
    shop.model.script = [says("", *[("fine", {"x": str(n)}) for n in range(2)]), says("well")]
    await shop.say(agent_id, "go")
    shop.model.script = [
        says("", ("fine", {"x": "2"}), ("fine", {"x": "3"}), ("conversation_search", {"query": "x"})),
        says("well"),
    ]
    events = await shop.say(agent_id, "go on")
    assert shop.ran == ["fine:0", "fine:1", "fine:2"]
    assert ["used up" in told for told in results(events)] == [False, True, True]
    assert ended(events).stop_reason is StopReason.end_turn
    found = await shop.permissions.limits(agent_id)
    assert (found.used.tool_calls, found.warrant.quota.tool_calls) == (3, 3)
    await shop.stop()
    await shop.start()  # a restart forgets nothing
    shop.model.script = [says("", ("fine", {"x": "4"})), says("well")]
    assert "used up" in results(await shop.say(agent_id, "go on"))[0]
    await shop.kelpie.api().agents.update(agent_id, {"quota": Quota(tool_calls=4)})
    shop.model.script = [says("", ("fine", {"x": "5"})), says("well")]
    assert results(await shop.say(agent_id, "go on")) == ["done"]


async def test_processor_time_is_counted_also_of_what_fails(shop: Workshop):
    agent_id = await shop.make("fine", quota=Quota(cpu_us=1_000_000, memory_bytes=64 * MEGABYTE))
    shop.cost = 600_000
    shop.model.script = [says("", ("fine", {"x": "break"}), ("fine", {"x": "2"}), ("fine", {"x": "3"})), says("well")]
    events = await shop.say(agent_id, "go")
    assert shop.ran == ["fine:break", "fine:2"]
    assert [told.partition(" ")[0] for told in results(events)] == ["it", "done", "'fine'"]
    assert shop.contexts[0].quota.memory_bytes == 64 * MEGABYTE
    found = (await shop.permissions.calls(CallQuery(), agent_id))[::-1]
    assert [(c.outcome.value, c.took.cpu_us) for c in found] == [
        ("error", 600_000),
        ("success", 600_000),
        ("refused", 0),
    ]
    assert found[1].took.memory_peak_bytes == 3 * MEGABYTE and found[0].took.duration_us >= 0
    limits = await shop.permissions.limits(agent_id)
    assert (limits.used.cpu_us, limits.used.memory_peak_bytes) == (1_200_000, 3 * MEGABYTE)


async def test_tokens_of_an_hour_end_the_turn(shop: Workshop):
    agent_id = await shop.make("fine", quota=Quota(tokens=15))
    assert ended(await shop.say(agent_id, "hi")).stop_reason is StopReason.end_turn
    end = ended(await shop.say(agent_id, "more"))
    assert (end.stop_reason, end.detail) == (StopReason.insufficient_credits, "limit")
    assert end.budget is not None and "kelpie_limits" in end.budget["message"] and end.budget["period"] == "hour"
    await shop.kelpie.api().agents.update(agent_id, {"quota": None})
    assert ended(await shop.say(agent_id, "now?")).stop_reason is StopReason.end_turn
    await shop.permissions.set_policy(Policy(quota=Quota(tokens=1)))
    assert ended(await shop.say(agent_id, "and now?")).detail == "limit"


async def test_a_client_may_be_kept_from_running_tools(shop: Workshop):
    agent_id = await shop.make(permits=ToolPatterns(None, ("kind:client",)))
    shop.model.script = [says("", ("open_door", {})), says("well")]
    client = (ClientTool("open_door", "Opens it.", {"type": "object", "properties": {}}),)
    events = await shop.say(agent_id, "go", client_tools=client)
    assert ended(events).stop_reason is StopReason.end_turn  # and does not wait for the client
    assert "may not use it" in results(events)[0]
    assert await shop.calls(agent_id) == [("open_door", "refused")]


async def test_nothing_is_asked_for_approval_that_may_not_run(shop: Workshop):
    rules = (ToolRule("requires_approval", "bad"),)
    agent_id = await shop.make("bad", tool_rules=rules, permits=ToolPatterns(None, ("bad",)))
    shop.model.script = [says("", ("bad", {"x": "1"})), says("well")]
    assert ended(await shop.say(agent_id, "go")).stop_reason is StopReason.end_turn


async def test_outcomes_are_told_apart(shop: Workshop):
    agent_id = await shop.make("fine")
    calls = ("fine", {}), ("nothing", {}), ("fine", {"x": "break"}), ("conversation_search", {"query": "x"})
    shop.model.script = [says("", *calls), says("well")]
    await shop.say(agent_id, "go")
    assert await shop.calls(agent_id) == [
        ("fine", "invalid"),
        ("nothing", "invalid"),
        ("fine", "error"),
        ("conversation_search", "success"),
    ]
    usage = {each.name: each for each in await shop.permissions.usage(1)}
    assert (usage["fine"].calls, usage["fine"].errors, usage["nothing"].kind) == (2, 1, None)
    registered = {each.subject.name: each for each in (await shop.permissions.of_agent(agent_id)).tools}
    assert registered["fine"].subject.kind == "custom" and registered["fine"].refusal is None


async def test_a_call_by_hand_that_nobody_waits_for_counts_at_once_with_what_it_took(shop: Workshop):
    agent_id = await shop.make("fine", quota=Quota(tool_calls=2))
    shop.model.script = [says("", ("fine", {"x": "1"})), says("well")]
    await shop.say(agent_id, "go")
    shop.hold = asyncio.Event()
    shop.begun.clear()
    trial = asyncio.create_task(shop.kelpie.api().manual_tool_runs.run(agent_id, "fine", {"x": "2"}))
    async with asyncio.timeout(10):
        await shop.begun.wait()
    shop.contexts[-1].meter.cpu_us = 5  # as a sandbox tells it
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    newest = (await shop.permissions.calls(CallQuery(), agent_id))[0]
    assert (newest.outcome, newest.took.cpu_us, newest.counted) == ("interrupted", 5, True)
    shop.model.script = [says("", ("fine", {"x": "3"})), says("well")]
    assert "has used up its" in results(await shop.say(agent_id, "go"))[0]


async def test_a_cancelled_call_is_recorded_and_all_goes_with_the_agent(shop: Workshop):
    agent_id = await shop.make("fine")
    shop.hold = asyncio.Event()
    shop.model.script = [says("", ("fine", {"x": "1"}))]
    turn = await shop.kelpie.api().sending.send(agent_id, SendRequest((NewMessage(Role.user, (Text("go"),)),)))
    async with asyncio.timeout(10):
        await shop.begun.wait()
    shop.contexts[-1].meter.cpu_us = 5  # as a sandbox tells it
    doors = shop.kelpie.api()
    await doors.cancellations.of_agent(agent_id)
    events = [event async for event in turn.events()]
    assert ended(events).stop_reason is StopReason.cancelled
    assert await shop.calls(agent_id) == [("fine", "interrupted")]
    assert (await shop.permissions.limits(agent_id)).used.cpu_us == 5
    await shop.kelpie.api().agents.delete(agent_id)
    assert await shop.permissions.calls(CallQuery()) == []
