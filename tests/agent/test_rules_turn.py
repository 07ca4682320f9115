"""Turns under tool rules, of every agent type: what the model is offered, what is run, how the turn ends, and that a
crash in the middle changes none of it."""

import asyncio
import json

import pytest
import pytest_asyncio

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.agents.agent import AgentType, NewAgent, ToolRule
from kelpie.core.conversations.messages import ApprovalDecision, MessageQuery, Role
from kelpie.core.conversations.runs import RunQuery, RunStatus, StopReason
from kelpie.core.memory.blocks import NewBlock
from kelpie.core.tools.tools import NewTool
from kelpie.tools.calls.interface import Outcome
from tests.agent.conftest import Rig, ended, rows, says
from tests.agent.test_recovery import behind, run_is, until

TYPES = [t for t in AgentType if t is not AgentType.voice_convo_agent]  # which needs a companion
BY_HEARTBEAT = ("memgpt_agent", "memgpt_v2_agent", "react_agent", "workflow_agent", "split_thread_agent")
SOURCE = '''
def {name}(s: str, n: int = 0) -> str:
    """Does {name}.

    Args:
        s (str): anything
        n (int): a number
    """
    return s
'''
NAMES = ("one", "two", "three")


def rule(kind, tool="one", **options):
    return ToolRule(kind, tool, options)


class Shop(Rig):
    """A rig with three tools; `ran` is what was really run, `held` a call that never comes back."""

    def __init__(self, path) -> None:
        super().__init__(path, external=self._run)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets what was said and run before."""
        self.model.script, self.model.requests = [], []
        self.ran: list[tuple[str, dict]] = []
        self.held = None
        self.meanwhile = None  # what somebody else does while the next call runs
        self.holding = asyncio.Event()

    async def _run(self, tool, call, arguments):
        self.ran.append((tool.name, dict(arguments)))
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        if self.held == tool.name:
            self.holding.set()
            await asyncio.Event().wait()
        return Outcome(arguments["s"])

    async def agent(self, *rules, agent_type=AgentType.letta_v1_agent, **fields):
        made = await self.kelpie.api().agents.create(
            NewAgent(
                agent_type=agent_type,
                tool_ids=self.tools,
                tool_rules=rules,
                system="Work.",
                memory_blocks=(NewBlock("human", "Name: Bob"),),
                **{"include_base_tools": False, **fields},
            )
        )
        return made.agent

    async def open(self) -> "Shop":
        await self.start()
        self.tools = tuple([(await self.kelpie.api().tools.create(NewTool(SOURCE.format(name=n)))).id for n in NAMES])
        return self

    def offers(self):
        """What each model call offered and asked for."""
        return [([tool.name for tool in r.tools], r.tool_choice) for r in self.model.requests]

    @property
    def names(self):
        return [name for name, _ in self.ran]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory):
    """One shop for all tests, each of which makes an agent of its own: opening one takes longer than the turns."""
    made = await Shop(tmp_path_factory.mktemp("shop") / "kelpie.db").open()
    yield made
    await made.stop()


@pytest.fixture
def shop(opened):
    opened.begin_anew()
    return opened


def call(name, s="x", **more):
    return (name, {"s": s, **more})


def results(events):
    return [(r.name, r.ok, r.text) for row in rows(events) for r in row.tool_returns]


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_first_tool_is_forced_with_its_arguments_in_every_type(shop, agent_type):
    agent = await shop.agent(rule("run_first", "two", args={"n": 7}), agent_type=agent_type)
    shop.model.script = [says("", call("two", "mine", n=1, request_heartbeat=True)), says("done")]
    events = await shop.say(agent.id, "go")
    assert shop.ran == [("two", {"s": "mine", "n": 7})]
    assert shop.offers()[0] == (["two"], "two") and shop.offers()[1][0] == list(NAMES)
    (reply, *_) = rows(events)
    assert json.loads(reply.tool_calls[0].arguments)["n"] == 7, "what is stored is what was run"
    assert ended(events).stop_reason is StopReason.end_turn


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_child_is_forced_after_its_parent_without_a_heartbeat(shop, agent_type):
    nodes = [{"name": "two", "args": {"s": "given"}}]
    agent = await shop.agent(
        rule("constrain_child_tools", "one", children=["two"], child_arg_nodes=nodes), agent_type=agent_type
    )
    shop.model.script = [says("", call("one")), says("", ("two", {})), says("done")]
    events = await shop.say(agent.id, "go")
    assert shop.ran == [("one", {"s": "x"}), ("two", {"s": "given"})]
    assert shop.offers()[:2] == [(list(NAMES), shop.offers()[0][1]), (["two"], "two")]
    assert ended(events).stop_reason is StopReason.end_turn


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_forbidden_call_is_not_run_and_the_turn_goes_on(shop, agent_type):
    agent = await shop.agent(rule("parent_last_tool", "one", children=["two"]), agent_type=agent_type)
    shop.model.script = [
        says("", call("two")), says("", call("one", request_heartbeat=True)), says("", call("two")), says("done")
    ]  # fmt: skip
    events = await shop.say(agent.id, "go")
    assert shop.names == ["one", "two"]
    name, ok, text = results(events)[0]
    assert (name, ok) == ("two", False) and text.endswith("Allowed tools: one, three.")
    assert "two" not in shop.offers()[0][0] and "two" not in shop.offers()[1][0] and "two" in shop.offers()[2][0]


@pytest.mark.parametrize(("output", "then"), [("go", "two"), ("stay", "three")])
@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_result_chooses_the_next_tool(shop, agent_type, output, then):
    condition = rule("conditional", child_output_mapping={"go": "two"}, default_child="three")
    agent = await shop.agent(condition, agent_type=agent_type)
    shop.model.script = [says("", call("one", output)), says("", call(then)), says("done")]
    await shop.say(agent.id, "go")
    assert shop.names == ["one", then] and shop.offers()[1] == ([then], then)


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_tool_runs_no_more_often_than_its_limit_in_a_turn(shop, agent_type):
    agent = await shop.agent(rule("max_count_per_step", max_count_limit=2), agent_type=agent_type)
    twice = says("", call("one", "a", request_heartbeat=True), call("one", "b"), call("one", "c"))
    shop.model.script = [twice, says("", call("one", "d")), says("done")]
    events = await shop.say(agent.id, "go")
    assert [arguments["s"] for _, arguments in shop.ran] == ["a", "b"]
    assert [ok for _, ok, _ in results(events)] == [True, True, False, False]
    assert "one" not in shop.offers()[1][0]
    shop.model.script = [says("", call("one", "e"))]
    await shop.say(agent.id, "again")
    assert shop.ran[-1] == ("one", {"s": "e"}), "another turn counts anew"


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_turn_does_not_end_before_what_it_requires(shop, agent_type):
    agent = await shop.agent(rule("required_before_exit", "two"), agent_type=agent_type)
    shop.model.script = [says("too early"), says("", call("two", request_heartbeat=True)), says("done")]
    events = await shop.say(agent.id, "go")
    assert shop.names == ["two"] and shop.offers()[1] == (["two"], "two")
    assert ended(events).stop_reason is StopReason.end_turn and rows(events)[-1].text == "done"
    told = [row for row in rows(events) if row.role is Role.user]
    assert len(told) == (0 if agent_type in BY_HEARTBEAT else 1)
    assert "two" in shop.model.requests[1].messages[-1].message.text


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_model_that_never_does_what_is_required_stops_at_the_limit(shop, agent_type):
    agent = await shop.agent(rule("required_before_exit", "two"), agent_type=agent_type)
    shop.model.script = [says("no")] * 10
    events = await shop.say(agent.id, "go", max_steps=4)
    assert ended(events).stop_reason is StopReason.max_steps and ended(events).step_count == 4
    shop.model.script = [says("", call("two", request_heartbeat=True)), says("done")]
    assert ended(await shop.say(agent.id, "and now")).stop_reason is StopReason.end_turn


@pytest.mark.parametrize("agent_type", TYPES)
async def test_a_terminal_tool_ends_the_turn_once_nothing_is_owed(shop, agent_type):
    agent = await shop.agent(rule("exit_loop", "three"), rule("required_before_exit", "two"), agent_type=agent_type)
    shop.model.script = [
        says("", call("three")),
        says("", call("two", request_heartbeat=True)),
        says("", call("three")),
    ]
    events = await shop.say(agent.id, "go")
    assert shop.names == ["three", "two", "three"]
    expected = StopReason.end_turn if agent_type in BY_HEARTBEAT else StopReason.tool_rule
    assert ended(events).stop_reason is expected


async def test_a_tool_that_goes_on_needs_no_heartbeat(shop):
    agent = await shop.agent(rule("continue_loop", "one"), agent_type=AgentType.memgpt_agent)
    shop.model.script = [says("", call("one")), says("", call("two"))]
    await shop.say(agent.id, "go")
    assert shop.names == ["one", "two"]


@pytest.mark.parametrize("agent_type", TYPES)
@pytest.mark.parametrize("args", [{"zzz": 1}, {"n": "many"}])
async def test_a_rule_whose_arguments_do_not_fit_ends_the_turn(shop, agent_type, args):
    agent = await shop.agent(rule("run_first", "one", args=args), agent_type=agent_type)
    shop.model.script = [says("", call("one"))]
    events = await shop.say(agent.id, "go")
    assert not shop.ran and ended(events).stop_reason is StopReason.invalid_tool_call
    ((_, ok, text),) = results(events)
    assert not ok and next(iter(args)) in text
    (run,) = await shop.kelpie.api().runs.page(RunQuery(agent_ids=(agent.id,)))
    assert run.status is RunStatus.failed


@pytest.mark.parametrize("agent_type", TYPES)
async def test_calls_of_one_reply_follow_the_rules_one_after_the_other(shop, agent_type):
    agent = await shop.agent(rule("constrain_child_tools", "one", children=["two"]), agent_type=agent_type)
    shop.model.script = [says("", call("one"), call("three"), call("two"), call("three")), says("done")]
    events = await shop.say(agent.id, "go")
    assert shop.names == ["one", "two", "three"]
    assert [ok for _, ok, _ in results(events)] == [True, False, True, True]


async def test_what_a_result_decides_waits_for_the_next_step(shop):
    agent = await shop.agent(rule("conditional", child_output_mapping={"go": "two"}))
    shop.model.script = [says("", call("one", "go"), call("two")), says("", call("two")), says("done")]
    events = await shop.say(agent.id, "go")
    assert shop.names == ["one", "two"] and "'one' decides" in results(events)[1][2]


async def test_parallel_calls_are_asked_for_unless_their_order_matters(shop):
    for rules, parallel in (
        ((), True),
        ((rule("max_count_per_step", max_count_limit=3), rule("exit_loop", "three")), True),
        ((rule("parent_last_tool", children=["two"]),), False),
    ):
        agent = await shop.agent(*rules, parallel_tool_calls=True)
        await shop.say(agent.id, "go")
        assert shop.model.requests[-1].parallel_tool_calls is parallel


async def test_an_agent_whose_rules_leave_nothing_answers_and_is_not_stuck(shop):
    agent = await shop.agent(
        rule("constrain_child_tools", children=["two"]), rule("max_count_per_step", "two", max_count_limit=0)
    )
    shop.model.script = [says("", call("one")), says("", call("three")), says("nothing left")]
    events = await shop.say(agent.id, "go")
    assert shop.names == ["one"] and rows(events)[-1].text == "nothing left"
    assert shop.offers()[1] == (list(NAMES), "none"), "a history with calls needs its tools"
    assert ended(events).stop_reason is StopReason.end_turn


async def test_a_call_that_is_denied_counts_as_made_so_that_no_rule_asks_for_it_for_ever(shop):
    agent = await shop.agent(rule("requires_approval", "two"), rule("required_before_exit", "two"))
    shop.model.script = [says("", call("two")), says("done")]
    asked = await shop.say(agent.id, "go")
    assert ended(asked).stop_reason is StopReason.requires_approval
    turn = await shop.kelpie.api().sending.send(agent.id, SendRequest((), answers=(ApprovalDecision("call_0", False),)))
    events = [event async for event in turn.events()]
    assert not shop.ran and "request to call tool denied" in results(events)[0][2]
    assert ended(events).stop_reason is StopReason.end_turn and ended(events).step_count == 1


async def test_wrong_arguments_and_unknown_tools_are_no_calls_for_the_rules(shop):
    agent = await shop.agent(rule("run_first", "one"), rule("max_count_per_step", max_count_limit=1))
    shop.model.script = [says("", ("one", {"s": 1, "bad": 2})), says("", ("ghost", {})), says("", call("one"))]
    await shop.say(agent.id, "go")
    assert [choice for _, choice in shop.offers()] == ["one", "one", "one", "auto"] and shop.names == ["one"]


async def test_arguments_that_a_rule_changes_are_not_previewed(shop):
    agent = await shop.agent(rule("run_first", "one", args={"n": 3}))
    shop.model.script = [says("", call("one")), says("done")]
    await shop.say(agent.id, "go", deltas=True)
    assert [request.deltas for request in shop.model.requests] == [False, True]


async def test_a_rule_that_is_changed_in_the_middle_of_a_turn_counts_from_the_next_step(shop):
    agent = await shop.agent(rule("constrain_child_tools", children=["two"]))
    changed = {"tool_rules": (rule("constrain_child_tools", children=["three"]),)}
    shop.meanwhile = lambda: shop.kelpie.api().agents.update(agent.id, changed)
    shop.model.script = [says("", call("one")), says("", call("three")), says("done")]
    await shop.say(agent.id, "go")
    assert shop.names == ["one", "three"] and shop.offers()[1] == (["three"], "three")


# --- cut off -----------------------------------------------------------------------------------------------------

EVERYTHING = (
    rule("run_first", "one", args={"n": 1}),
    rule("constrain_child_tools", "one", children=["two"], child_arg_nodes=[{"name": "two", "args": {"s": "child"}}]),
    rule("max_count_per_step", "two", max_count_limit=1),
    rule("required_before_exit", "three"),
)


@pytest.mark.parametrize("held", NAMES)
async def test_a_turn_that_was_cut_off_goes_on_under_the_same_rules(tmp_path, held):
    """The call that was running is told as interrupted and counts; nothing is run a second time."""
    shop = await Shop(tmp_path / "kelpie.db").open()
    agent = await shop.agent(*EVERYTHING)
    script = [
        says("", call("one")), says("", call("two"), call("two")), says("early"), says("", call("three")), says("done")
    ]  # fmt: skip
    shop.model.script, shop.held = script[:], held
    await behind(shop, agent.id, "go")
    async with asyncio.timeout(10):
        await shop.holding.wait()
    done = len(shop.model.requests)
    await shop.stop()
    shop.model.script, shop.held = script[done:], None
    await shop.start()
    await until(lambda: run_is(shop, RunStatus.completed))
    assert shop.names == ["one", "two", "three"]
    assert shop.offers() == [
        (["one"], "one"), (["two"], "two"), (["one", "three"], "auto"), (["three"], "three"), (["one", "three"], "auto")
    ]  # fmt: skip
    history = await shop.kelpie.api().histories.messages(agent.id, MessageQuery())
    kept = [(r.name, r.untried) for m in history for r in m.tool_returns]
    assert kept == [("one", False), ("two", False), ("two", True), ("three", False)]
    assert json.loads(history[2].tool_calls[0].arguments)["n"] == 1
    (run,) = await shop.kelpie.api().runs.page(RunQuery())
    assert run.stop_reason is StopReason.end_turn and run.step_count == 5
    await shop.stop()
