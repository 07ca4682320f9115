"""Agents that learn facts while models fail, the disk fails and the power is cut: every message is learnt once, nothing
is learnt twice, and the extraction position is never ahead of what is stored.
"""

import json
from typing import Any
from urllib.parse import quote

from kelpie.sim.checks.client_history import ClientMessage, Fate
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.basic.storage_faults import LINES
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate as Outcome
from kelpie.sim.scenarios.records.archive_records import fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
CITIES = ("Oslo", "Rome", "Lima")


class FactLearning(ServerScenario):
    """Two clients, each with an agent that learns."""

    settled_by_answers = False  # facts are extracted after an answer

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.talked: list[ClientMessage] = []
        self.forgotten: set[str] = set()  # facts whose deletion was acknowledged

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent", "memgpt_agent"))
        clients = self.clients(2)
        for client, agent_id in zip(clients, self.agents, strict=True):
            await self._learns(client, agent_id, {"every_turns": 1})
        await together(self._talk(client, agent) for client, agent in zip(clients, self.agents, strict=True))
        self.talked = [heard.said for heard in self.heard]

    async def _learns(self, client: ScenarioClient, agent_id: str, settings: dict[str, Any] | None) -> None:
        budget = {"tokens": 10**9, "period": "day"}  # never used up; what learning costs counts towards it
        await client.insist("PATCH", f"/v1/agents/{agent_id}", {"kelpie_facts": settings, "kelpie_budget": budget})

    async def _talk(self, client: ScenarioClient, agent_id: str) -> None:
        for turn in range(ROUNDS):
            await client.pause(4.0)
            await client.say(agent_id, *LINES[turn % len(LINES)], stream=client.tosses(0.5))
            told = {"attribute": "lives_in", "value": CITIES[turn % len(CITIES)]}
            await client.ask("POST", f"/v1/agents/{agent_id}/messages", {"input": f"learn {json.dumps(told)}"})
            if client.tosses(0.3):
                await self._forget(client, agent_id)

    async def _forget(self, client: ScenarioClient, agent_id: str) -> None:
        """Deletes the newest fact about where the user lives."""
        answer = await client.ask("GET", f"/v1/agents/{agent_id}/facts?attribute=lives_in")
        for one in answer.json()[:1] if answer is not None and answer.status == 200 else ():
            if fate_of(await client.ask("DELETE", f"/v1/agents/{agent_id}/facts/{one['id']}")) is Outcome.done:
                self.forgotten.add(one["id"])

    async def settle(self) -> None:
        visitor = self.client("visitor")
        for agent_id in self.agents:
            await self._gives_its_time_back(visitor, agent_id)
        await super().settle()

    async def _gives_its_time_back(self, client: ScenarioClient, agent_id: str) -> None:
        """A fact that is deleted leaves its time to the one that it had replaced, and nothing else changes."""
        path = f"/v1/agents/{agent_id}/facts"
        before = await client.insist("GET", f"{path}?attribute=lives_in")
        followed = [one for one in before if one["superseded_by"]]
        if not followed:
            return
        gone = client.picks([one for one in followed if one["supersedes"]] or followed)
        await client.insist("DELETE", f"{path}/{gone['id']}")
        wanted = [one for one in before if one is not gone]
        for one in wanted:
            if one["id"] == gone["supersedes"]:
                one |= {"valid_until": gone["valid_until"], "superseded_by": gone["superseded_by"]}
            if one["id"] == gone["superseded_by"]:
                one |= {"supersedes": gone["supersedes"]}
        found = await client.insist("GET", f"{path}?attribute=lives_in")
        if found != wanted:
            raise Broken("a deleted fact leaves its time to the one before", f"{gone}: {found} and not {wanted}")
        for one in wanted:  # at its beginning each is the only one that is true
            true = await client.insist("GET", f"{path}?attribute=lives_in&at={quote(one['valid_from'])}")
            if [each["id"] for each in true] != [one["id"]]:
                raise Broken("one value is true at any time", f"{one}: {true}")

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        for value, seen in disk.query("SELECT value, seen FROM facts WHERE attribute = 'said'"):
            if seen != 1:
                raise Broken("a fact is learnt once", f"{value} was learnt {seen} times")
        if back := self.forgotten & {row[0] for row in disk.query("SELECT id FROM facts")}:
            raise Broken("what is deleted is gone", str(sorted(back)))
        doubled = disk.query(
            "SELECT agent_id, value FROM facts WHERE attribute = 'said' GROUP BY agent_id, value HAVING count(*) > 1"
        )
        if doubled:
            raise Broken("no fact is doubled", str(doubled))
        last = "SELECT max(seq) FROM messages WHERE messages.agent_id = fact_states.agent_id"
        if found := disk.query(f"SELECT agent_id FROM fact_states WHERE through > ({last})"):
            raise Broken("how far was looked is never ahead of what is stored", str(found))
        skipped = {agent_id for agent_id, count in disk.query("SELECT agent_id, skipped FROM fact_states") if count}
        known = set(disk.query("SELECT agent_id, value FROM facts"))
        for said in self.talked:
            learnt = said.agent_id in skipped or (said.agent_id, said.token) in known
            if said.fate is Fate.acknowledged and not learnt:
                raise Broken("what was said is learnt in the end", f"{said.token} of {said.agent_id}")


LEARNING = scenario(
    "facts-under-faults",
    FactLearning,
    faults=(
        Aim(Fault.llm_timeout, "llm.reply", rate=0.05),
        Aim(Fault.llm_malformed, "llm.body", rate=0.05),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
        Aim(Fault.crash_before_write, "database.begin", rate=0.005),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.005),
    ),
    quiet_s=900.0,  # a model that failed is asked again after ten minutes at most
    swarm=(Fault.llm_rate_limit, Fault.network_delay, Fault.storage_latency, Fault.storage_read_fail),
)
