"""A pause: how a turn ends with it, what is answered while it lasts, and what the clocks do to it."""

import asyncio
import json

import pytest

from kelpie.agent.live.pauses import KEPT_MAX, Pauses
from kelpie.agent.prompt.agent_types import TYPES
from kelpie.agent.tool_calls.turn_end import CallSummary, Ruled, decide
from kelpie.core.agents.agent import Agent, AgentType, ModelChoice, NewAgent, ToolRule
from kelpie.core.conversations.messages import MessageQuery
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.errors import Conflict, DiskFull, InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.tools import NewTool
from kelpie.storage.runs import journal_keys
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says

PAUSE, MINUTE = "pause_heartbeats", 60 * MICROS_PER_SECOND
GO_ON = {"request_heartbeat": True, "thinking": "on"}
BY_HEARTBEAT = [kind for kind in AgentType if kind.has_heartbeats and kind is not AgentType.voice_convo_agent]
OUTSIDE = '''
def outside(mark: str) -> str:
    """Does something elsewhere.

    Args:
        mark (str): what
    """
    return mark
'''


class Clock:
    """A clock that is set by hand; `wall` may jump, `passed` only goes on."""

    def __init__(self) -> None:
        self.wall, self.passed = 1_700_000_000 * MICROS_PER_SECOND, 0

    def now(self):
        return self.wall

    def monotonic_ns(self):
        return self.passed * 1000

    def wait(self, minutes):
        self.wall += int(minutes * MINUTE)
        self.passed += int(minutes * MINUTE)


def memory(words, **more):
    return "core_memory_append", {"label": "human", "content": words, **more}


async def resting(rig, *extra, agent_type=AgentType.memgpt_agent, **fields):
    tools = (PAUSE, "core_memory_append", "send_message", *extra)
    made = await rig.kelpie.api().agents.create(
        NewAgent(
            agent_type=agent_type,
            system="s",
            include_base_tools=False,
            tools=tools,
            tool_rules=(),
            timezone="UTC",
            memory_blocks=(),
            **fields,
        )
    )
    return made.agent.id


async def until(rig, agent_id):
    return (await rig.kelpie.api().agents.get(agent_id)).paused_until


def results(events):
    return [(r.name, r.ok, r.text) for row in rows(events) for r in row.tool_returns]


# --- the turn that pauses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent_type", BY_HEARTBEAT)
async def test_a_pause_ends_the_turn_at_once_in_every_type(rig, agent_type):
    agent_id = await resting(rig, agent_type=agent_type)
    rig.model.script = [says("", (PAUSE, {"minutes": 5, **GO_ON})), says("never asked")]
    before = rig.kelpie.world.clock.now()
    end = ended(await rig.say(agent_id, "rest"))
    assert (end.stop_reason, end.detail, end.step_count, end.error) == (StopReason.end_turn, PAUSE, 1, None)
    assert len(rig.model.requests) == 1 and "request_heartbeat" not in str(
        next(t.parameters for t in rig.model.requests[0].tools if t.name == PAUSE)
    )
    lasts = await until(rig, agent_id) - before
    assert 5 * MINUTE <= lasts < 6 * MINUTE
    [run] = await rig.kelpie.api().runs.page(RunQuery())
    assert (run.status, run.stop_reason, run.stop_detail) == (RunStatus.completed, StopReason.end_turn, PAUSE)


async def test_calls_before_it_are_made_and_calls_after_it_are_interrupted(rig):
    agent_id = await resting(rig)
    rig.model.script = [
        says("", ("send_message", {"message": "bye"}), (PAUSE, {}), ("send_message", {"message": "x"}), ("nope", {}))
    ]
    events = await rig.say(agent_id, "rest")
    found = results(events)
    assert [(name, ok) for name, ok, _ in found] == [
        ("send_message", True),
        (PAUSE, True),
        ("send_message", False),
        ("nope", False),
    ]
    assert "2 minutes" in found[1][2] and all("Interrupted by pause" in text for _, _, text in found[2:])
    assert ended(events).detail == PAUSE
    rig.model.script = [says("", ("send_message", {"message": "yes"}))]
    assert ended(await rig.say(agent_id, "there?")).error is None, "the history is sound"


async def test_calls_outside_are_interrupted_too(tmp_path):
    ran = []

    async def outside(tool, call, arguments):
        ran.append(arguments["mark"])
        return Outcome("done")

    rig = await Rig(tmp_path / "k.db", external=outside).start()
    await rig.kelpie.api().tools.create(NewTool(OUTSIDE))
    agent_id = await resting(rig, "outside")
    rig.model.script = [says("", ("outside", {"mark": "a"}), (PAUSE, {}), ("outside", {"mark": "b"}), memory("c"))]
    events = await rig.say(agent_id, "go")
    assert [(name, ok) for name, ok, _ in results(events)] == [
        ("outside", True),
        (PAUSE, True),
        ("outside", False),
        ("core_memory_append", False),
    ]
    assert ran == ["a"] and ended(events).detail == PAUSE
    [run] = await rig.kelpie.api().runs.page(RunQuery())
    assert run.status is RunStatus.completed
    await rig.stop()


async def test_it_wins_over_the_step_limit_and_over_tool_rules(rig):
    agent_id = await resting(rig)
    rules = (ToolRule("required_before_exit", "core_memory_append"),)
    await rig.kelpie.api().agents.update(agent_id, {"tool_rules": rules})
    rig.model.script = [says("", (PAUSE, {}))]
    end = ended(await rig.say(agent_id, "rest", max_steps=1))
    assert (end.stop_reason, end.detail) == (StopReason.end_turn, PAUSE)


@pytest.mark.parametrize(
    ("given", "minutes"), [({"minutes": "x"}, 2), ({"minutes": 900, "why": 1}, 60), ({"minutes": -1}, 1)]
)
async def test_bad_minutes_are_never_refused(rig, given, minutes):
    agent_id = await resting(rig)
    rig.model.script = [says("", (PAUSE, given))]
    before = rig.kelpie.world.clock.now()
    [(_, ok, text)] = results(await rig.say(agent_id, "rest"))
    assert ok and f"{minutes} minute" in text
    assert minutes * MINUTE <= await until(rig, agent_id) - before < (minutes + 1) * MINUTE


async def test_a_new_pause_replaces_the_old_even_by_a_shorter_one(rig):
    agent_id = await resting(rig)
    rig.model.script = [says("", (PAUSE, {"minutes": 50})), says("", (PAUSE, {"minutes": 1}))]
    await rig.say(agent_id, "rest")
    long = await until(rig, agent_id)
    await rig.say(agent_id, "shorter")
    assert await until(rig, agent_id) < long - 40 * MINUTE


# --- while it lasts --------------------------------------------------------------------------------------------------


async def test_messages_are_answered_but_no_heartbeat_goes_on(rig):
    agent_id = await resting(rig)
    await rig.kelpie.api().agents.update(agent_id, {"tool_rules": (ToolRule("continue_loop", "core_memory_append"),)})
    rig.model.script = [says("", (PAUSE, {"minutes": 60}))]
    await rig.say(agent_id, "rest")
    for reply in (("send_message", {"message": "hi", **GO_ON}), memory("x", **GO_ON), memory("y")):
        rig.model.script, rig.model.requests = [says("", reply), says("never asked")], []
        events = await rig.say(agent_id, "hello")
        assert len(rig.model.requests) == 1 and len(rows(events)) == 2, "one step, and no word to go on"
        assert (ended(events).stop_reason, ended(events).detail) == (StopReason.end_turn, PAUSE)
    rig.model.script = [says("", ("send_message", {"message": "hi"}))]
    assert ended(await rig.say(agent_id, "hello")).detail is None, "nothing was held back"


def test_a_mistake_may_be_mended_and_a_rule_still_demands_while_paused():
    spec = TYPES[AgentType.memgpt_agent]
    asked, refused = CallSummary("a", True, False), CallSummary("a", False, True)
    assert decide(spec, (), [asked], "tool_calls", 0, paused=True).stop is StopReason.end_turn
    assert decide(spec, (), [refused], "tool_calls", 5, paused=True).stop is None
    assert decide(spec, (), [asked], "tool_calls", 5, Ruled(owed=("b",)), paused=True).stop is None
    assert decide(TYPES[AgentType.letta_v1_agent], (), [asked], "tool_calls", 5, paused=True).stop is None


async def test_it_survives_a_restart_and_lets_the_agent_go_on_when_it_is_over(rig):
    agent_id = await resting(rig)
    rig.model.script = [says("", (PAUSE, {"minutes": 60}))]
    await rig.say(agent_id, "rest")
    lasts = await until(rig, agent_id)
    await rig.stop()
    await rig.start()
    assert await until(rig, agent_id) == lasts
    rig.model.script, rig.model.requests = [says("", memory("x", **GO_ON))], []
    await rig.say(agent_id, "hello")
    assert len(rig.model.requests) == 1
    rig.kelpie.runtime.pauses._clock = forward = Clock()
    forward.wall = lasts
    assert await until(rig, agent_id) is None
    rig.model.script, rig.model.requests = (
        [says("", memory("x", **GO_ON)), says("", ("send_message", {"message": "y"}))],
        [],
    )
    assert ended(await rig.say(agent_id, "hello")).detail is None and len(rig.model.requests) == 2


# --- clocks ----------------------------------------------------------------------------------------------------------


def paused_agent(clock, minutes, number=1):
    model = ModelChoice("test/script", 1000)
    agent_id = AgentId(f"agent-{number:08d}-0000-4000-8000-000000000000")
    return Agent(
        agent_id,
        "a",
        AgentType.memgpt_agent,
        "s",
        model,
        0,
        0,
        paused_at=clock.wall,
        paused_until=clock.wall + minutes * MINUTE,
    )


def test_it_ends_on_time():
    clock = Clock()
    pauses, agent = Pauses(clock), paused_agent(clock, 10)
    assert pauses.until(agent) == agent.paused_until
    clock.wait(9.9)
    assert pauses.until(agent) == agent.paused_until
    clock.wait(0.1)
    assert pauses.until(agent) is None


def test_a_jump_forward_ends_it():
    clock = Clock()
    pauses, agent = Pauses(clock), paused_agent(clock, 10)
    assert pauses.until(agent) is not None
    clock.wall += 11 * MINUTE
    assert pauses.until(agent) is None


@pytest.mark.parametrize("back", [0.5, 4, 4.9, 30, 10_000])
def test_a_jump_back_never_prolongs_it(back):
    clock = Clock()
    pauses, agent = Pauses(clock), paused_agent(clock, 10)
    assert pauses.until(agent) is not None
    clock.wait(5)
    clock.wall -= int(back * MINUTE)
    assert (pauses.until(agent) is not None) == (back <= 5), "before its beginning nobody knows what is left"
    clock.wait(5.01)
    assert pauses.until(agent) is None


def test_another_pause_is_timed_anew_and_what_is_kept_is_bounded():
    clock = Clock()
    pauses = Pauses(clock)
    assert pauses.until(paused_agent(clock, 1)) is not None
    clock.wait(2)
    assert pauses.until(paused_agent(clock, 1)) is not None
    for number in range(KEPT_MAX + 10):
        assert pauses.until(paused_agent(clock, 60, number)) is not None
    assert len(pauses._ends) == KEPT_MAX


# --- faults ----------------------------------------------------------------------------------------------------------


async def test_a_failed_commit_keeps_neither_half_of_a_pause_and_loses_none_that_was_made(rig, monkeypatch):
    agent_id = await resting(rig)
    first = await rig.kelpie.api().histories.messages(agent_id, MessageQuery())
    add, failing = journal_keys.add, {"step"}

    def breaking(tx, claim, turn_id, step, kind, at):
        if kind in failing:
            raise DiskFull("no space left")
        add(tx, claim, turn_id, step, kind, at)

    monkeypatch.setattr(journal_keys, "add", breaking)
    rig.model.script = [says("", (PAUSE, {"minutes": 60}))]
    assert isinstance(ended(await rig.say(agent_id, "rest")).error, DiskFull)
    assert await until(rig, agent_id) is None
    assert await rig.kelpie.api().histories.messages(agent_id, MessageQuery()) == first
    failing.clear()
    rig.model.script = [says("", (PAUSE, {"minutes": 60}))]
    assert ended(await rig.say(agent_id, "rest")).detail == PAUSE
    lasts, said = await until(rig, agent_id), await rig.kelpie.api().histories.messages(agent_id, MessageQuery())
    assert lasts is not None and json.dumps([m.text for m in said]).count("rest") == 1
    failing.add("step")
    rig.model.script = [says("", memory("x"))]
    assert isinstance(ended(await rig.say(agent_id, "hello")).error, DiskFull)
    assert await until(rig, agent_id) == lasts
    assert await rig.kelpie.api().histories.messages(agent_id, MessageQuery()) == said
    failing.clear()
    rig.model.script = [says("", ("send_message", {"message": "hi"}))]
    async with asyncio.timeout(20):
        assert ended(await rig.say(agent_id, "hello")).error is None


# --- who may have it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent_type", [kind for kind in AgentType if not kind.has_heartbeats])
async def test_types_without_heartbeats_are_refused_it_whichever_way_it_comes(rig, agent_type):
    agents, tools = rig.kelpie.api().agents, rig.kelpie.api().tools
    with pytest.raises(InvalidInput, match=f"^tools: .*{agent_type} has none"):
        await agents.create(NewAgent(agent_type=agent_type, system="s", tools=(PAUSE,)))
    tool = await tools.by_name(PAUSE)
    with pytest.raises(InvalidInput, match="has none"):
        await agents.create(NewAgent(agent_type=agent_type, system="s", tool_ids=(tool.id,)))
    made = (await agents.create(NewAgent(agent_type=agent_type, system="s"))).agent
    with pytest.raises(InvalidInput, match=r"^tool_ids: .*has none"):
        await agents.update(made.id, {"tool_ids": [tool.id]})
    with pytest.raises(InvalidInput, match=r"^tool_id: .*has none"):
        await tools.attach(made.id, tool.id)
    assert PAUSE not in [t.name for t in (await agents.get(made.id)).tools]
    with pytest.raises(Conflict, match="built-in"):
        await tools.create(NewTool(OUTSIDE.replace("outside", PAUSE)))


async def test_types_with_heartbeats_get_it_by_attaching_as_well(rig):
    made = (await rig.kelpie.api().agents.create(NewAgent(agent_type=AgentType.memgpt_agent))).agent
    tool = await rig.kelpie.api().tools.by_name(PAUSE)
    assert PAUSE in [t.name for t in (await rig.kelpie.api().tools.attach(made.id, tool.id)).tools]
