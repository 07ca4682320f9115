"""An agent with a budget that gets messages in several conversations at once while its budget is raised and the server
crashes.

The recorded spending is what the committed steps have used, and it goes beyond the budget by no more than the calls in
flight: one for each conversation. A raised budget lets the agent go on at once.
"""

import json
from dataclasses import replace
from typing import Any

from kelpie.sim.checks.client_history import Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import MODEL, SETTINGS
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

LANES = 3
ROUNDS = 3
FIRST_TOKENS = 2_500  # a few calls
RAISE_TOKENS = 2_000
PRICE_USD = 1.0  # a million tokens, so that a token costs a millionth of a dollar


class BudgetedAgents(ServerScenario):
    """Three clients, each in a conversation of its own; a fourth raises the budget now and then."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.tokens = FIRST_TOKENS  # the highest budget that was ever asked for

    async def act(self) -> None:
        await self.make_agents(1, types=("letta_v1_agent",))
        owner = self.client("owner")
        await self._set(owner, {"tokens": self.tokens, "usd": 1.0})
        body = {"isolated_block_labels": []}
        path = f"/v1/conversations/?agent_id={self.agents[0]}"
        lanes = [None, *[(await owner.insist("POST", path, body))["id"] for _ in range(LANES - 1)]]
        await together(
            [self._raise(owner), *(self._talk(p, lane) for p, lane in zip(self.clients(LANES), lanes, strict=True))]
        )
        self._is_within()
        await self._set(owner, None)

    async def _talk(self, client: ScenarioClient, lane: str | None) -> None:
        for turn in range(ROUNDS):
            await client.pause(4.0)
            stream = client.tosses(0.5)
            heard = await client.say(self.agents[0], *LINES[turn % len(LINES)], stream=stream, conversation=lane)
            if heard.said.fate is Fate.failed and heard.status == 200 and not heard.trouble:
                self._is_within()

    async def _raise(self, owner: ScenarioClient) -> None:
        for _ in range(2):
            await owner.pause(20.0)
            self.tokens += RAISE_TOKENS
            await self._set(owner, {"tokens": self.tokens, "usd": 1.0})

    async def _set(self, owner: ScenarioClient, budget: dict[str, Any] | None) -> None:
        await owner.insist("PATCH", f"/v1/agents/{self.agents[0]}", {"kelpie_budget": budget})

    def _used(self) -> list[dict[str, Any]]:
        rows = self.machine.disk.query("SELECT usage FROM steps WHERE agent_id = ?", self.agents[0])
        return [json.loads(usage) for (usage,) in rows]

    def _is_within(self) -> None:
        used = [usage["total_tokens"] for usage in self._used()]
        most = self.tokens + LANES * max(used, default=0)
        if sum(used) > most:
            raise Broken("a budget is held", f"{sum(used)} tokens were used of {self.tokens}, the calls were {used}")

    def check(self) -> None:
        super().check()
        used = self._used()
        rows = self.machine.disk.query("SELECT usage FROM runs WHERE agent_id = ?", self.agents[0])
        for name in ("total_tokens", "cost_micros", "unpriced_calls"):
            of_steps, of_runs = sum(u[name] for u in used), sum(json.loads(r)[name] for (r,) in rows)
            if of_steps != of_runs:
                raise Broken("runs have used what their steps have", f"{name}: {of_runs} of runs, {of_steps} of steps")
        if any(usage["cost_micros"] != usage["total_tokens"] for usage in used):
            raise Broken("every step has its cost", str(used))


BUDGETS = scenario(
    "budgets-under-crashes",
    BudgetedAgents,
    faults=(
        Aim(Fault.crash_before_write, "journal.step", rate=0.04),
        Aim(Fault.crash_after_write, "journal.step", rate=0.04),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.02),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.02),
        Aim(Fault.storage_read_fail, "database.read", rate=0.02),
    ),
    swarm=(Fault.llm_rate_limit, Fault.network_delay, Fault.storage_latency, Fault.cpu_starvation),
    settings=replace(SETTINGS, model_prices=(f"{MODEL}={PRICE_USD:g}/{PRICE_USD:g}",)),
)
