"""Turns under tool rules while the power fails at every point of their journal.

Whatever was cut off, each step is offered the same tools with the same choice as without a cut, each call is run or
refused as the rules say, and the agents take new messages afterwards.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.scripted_model import token_of
from kelpie.sim.scenarios.basic.crashes import AFTER, BEFORE, cuts
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario

SEARCH, INSERT, REPLACE, OUTSIDE = "conversation_search", "memory_insert", "memory_replace", "outside"
ALL = frozenset({SEARCH, INSERT, REPLACE, OUTSIDE})

_ORDERED = (
    {"type": "run_first", "tool_name": SEARCH, "args": {"query": "anything"}},
    {"type": "parent_last_tool", "tool_name": OUTSIDE, "children": [INSERT]},
    {
        "type": "constrain_child_tools",
        "tool_name": OUTSIDE,
        "children": [INSERT],
        "child_arg_nodes": [{"name": INSERT, "args": {"label": "human"}}],
    },
    {"type": "max_count_per_step", "tool_name": OUTSIDE, "max_count_limit": 2},
)
_OWING = (
    {"type": "required_before_exit", "tool_name": OUTSIDE},
    {"type": "exit_loop", "tool_name": SEARCH},
)


@dataclass(frozen=True, slots=True)
class RuleCase:
    """A message, the tools that each step of its turn must be offered, and the outcome of its calls: run or refused."""

    lines: tuple[str, ...]
    offers: tuple[tuple[frozenset[str], str], ...]
    calls: tuple[tuple[str, bool], ...]


_WORDS = 'call memory_insert {"label": "persona", "new_string": "{token} saw it"}'  # the rule says: human
_FIRST = (frozenset({SEARCH}), SEARCH)
_NEXT = (frozenset({INSERT}), INSERT)
_FREE = (ALL - {INSERT}, "auto")

ONE_BY_ONE = RuleCase(
    (
        "call conversation_search",
        _WORDS,
        'call outside {"mark": "{token}"}',
        'call memory_replace {"label": "human", "old_string": "secret", "new_string": "gone"}',
        _WORDS,
    ),
    (_FIRST, _FREE, _FREE, _NEXT, _NEXT, _FREE),
    ((SEARCH, True), (INSERT, False), (OUTSIDE, True), (REPLACE, False), (INSERT, True)),
)
TOGETHER = RuleCase(
    (
        "call conversation_search",
        f'call outside {{"mark": "{{token}}-a"}} & {_WORDS} & call outside {{"mark": "{{token}}-b"}}'
        ' & call outside {"mark": "{token}-c"}',
        _WORDS,
    ),
    (_FIRST, _FREE, _NEXT, (ALL - {INSERT, OUTSIDE}, "auto")),
    ((SEARCH, True), (OUTSIDE, True), (INSERT, True), (OUTSIDE, True), (OUTSIDE, False), (INSERT, True)),
)
OWED = RuleCase(
    ('call conversation_search {"query": "x"}', 'call outside {"mark": "{token}"}'),
    ((ALL, "auto"), (frozenset({OUTSIDE}), OUTSIDE), (ALL, "auto")),
    ((SEARCH, True), (OUTSIDE, True)),
)


class ToolRuleScenario(ServerScenario):
    """Two agents and one message after the other, so that the visits of each point can be counted."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.acts: dict[str, RuleCase] = {}  # by token

    async def act(self) -> None:
        await self.register_outside()
        ordered, owing = await self.make_agents(2, types=("letta_v1_agent",), tools=[OUTSIDE])
        maker, client = self.client("ruler"), self.client("person")
        await maker.insist("PATCH", f"/v1/agents/{ordered}", {"tool_rules": _ORDERED})
        await maker.insist("PATCH", f"/v1/agents/{owing}", {"tool_rules": _OWING})
        await self._say(client, ordered, ONE_BY_ONE)
        await self._say(client, ordered, TOGETHER, stream=True, tokens=True)
        await self._say(client, owing, OWED, stream=True)

    async def _say(
        self, client: ScenarioClient, agent_id: str, act: RuleCase, *, stream: bool = False, tokens: bool = False
    ) -> None:
        heard = await client.say(agent_id, *act.lines, stream=stream, tokens=tokens)
        self.acts[heard.said.token] = act

    async def settle(self) -> None:
        if self.machine.boots < 2:
            raise Broken("the power was cut", f"the node was booted {self.machine.boots} times")
        for agent_id in self.agents:  # these messages make no calls, and are not checked for any
            await self.client("ruler").insist("PATCH", f"/v1/agents/{agent_id}", {"tool_rules": []})
        await super().settle()

    def check(self) -> None:
        for seen in self.machine.llm.seen:
            self._offered_as_ruled(seen.body)
        for run_id, status, given in self.machine.disk.query("SELECT id, status, input FROM runs ORDER BY id"):
            act = self.acts.get(token_of(json.loads(given)["messages"][0]["content"][0]["text"]))
            if act is not None:
                self._answered_as_ruled(run_id, act, complete=status == "completed")
        super().check()

    def _offered_as_ruled(self, body: Mapping[str, Any]) -> None:
        messages: Sequence[Mapping[str, Any]] = body["messages"]
        asked = max(i for i, one in enumerate(messages) if one["role"] == "user" and "tok-" in str(one["content"]))
        act = self.acts.get(token_of(str(messages[asked]["content"])))
        if act is None:
            return
        step = sum(one["role"] == "assistant" for one in messages[asked:])
        choice = body.get("tool_choice", "auto")
        named = choice if isinstance(choice, str) else choice["function"]["name"]
        offer = (frozenset(tool["function"]["name"] for tool in body.get("tools") or ()), named)
        if offer != act.offers[step]:
            raise Broken("every step is offered what the rules allow", f"step {step}: {offer}, not {act.offers[step]}")

    def _answered_as_ruled(self, run_id: str, act: RuleCase, *, complete: bool) -> None:
        rows = self.machine.disk.query("SELECT tool_returns FROM messages WHERE run_id = ? ORDER BY seq", run_id)
        results = [result for (returned,) in rows for result in json.loads(returned)]
        found = tuple((result["name"], not result.get("untried", False)) for result in results)
        wanted = act.calls if complete else act.calls[: len(found)]
        if found != wanted:
            raise Broken("every call is run or turned away by the rules", f"{run_id}: {found}, not {wanted}")


_TOLD = tuple((Aim(fault, "outside.effect", nth=nth),) for nth in (1, 2, 3, 4) for fault in (BEFORE, AFTER))

# In the recovery from a first cut. The visit counts those of the lives before.
_AGAIN = (
    (Aim(AFTER, "journal.reply", nth=1), Aim(BEFORE, "journal.recover", nth=1)),
    (Aim(AFTER, "outside.effect", nth=1), Aim(AFTER, "journal.recover", nth=1)),
    (Aim(AFTER, "journal.result", nth=3), Aim(BEFORE, "journal.recover", nth=1)),
    (Aim(AFTER, "outside.effect", nth=3), Aim(AFTER, "journal.recover", nth=1)),
    (Aim(AFTER, "journal.step", nth=8), Aim(BEFORE, "journal.reply", nth=3)),
)

RULINGS = scenario(
    "tool-rules-and-crashes",
    ToolRuleScenario,
    plots=(
        *cuts("open", 1, 2, 3),
        *cuts("step", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        *cuts("reply", 1, 2, 3),
        *cuts("result", 1, 2, 3, 4, 5, 6),
        *_TOLD,
        *_AGAIN,
    ),
    swarm=(Fault.network_delay, Fault.storage_latency),
)
