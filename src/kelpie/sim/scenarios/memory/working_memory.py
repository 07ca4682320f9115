"""Working memory and checkpoints while the disk fails, the power is cut and clocks jump.

Counts match the acknowledged changes, one for one, by API and by tool; an entry that was reported as gone never comes
back; and a restore replaces the whole memory, or leaves it as it was.
"""

import asyncio
import json
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
TTL_S = 20
TRIES_MAX = 200
_TOOLS = ("working_memory_update",)
_LOSSES = {
    "a message without a search entry": """
        SELECT id FROM messages WHERE role = 'user' AND id NOT IN (SELECT item_id FROM search_items)""",
    "a search entry of nothing": """
        SELECT item_id FROM search_items WHERE kind = 'message' AND item_id NOT IN (SELECT id FROM messages)
        UNION SELECT item_id FROM search_items WHERE kind = 'passage' AND item_id NOT IN (SELECT id FROM passages)""",
    "a context of nothing": "SELECT message_id FROM context WHERE message_id NOT IN (SELECT id FROM messages)",
}


class WorkingMemoryUse(ServerScenario):
    """One agent counts for every client; another one's memory is saved, changed and restored again and again."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.fates: list[Fate] = []
        self.said = 0

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent", "memgpt_agent"), tools=_TOOLS)
        counter, ward = self.agents
        counting = (self._count(client, counter, number) for number, client in enumerate(self.clients(2)))
        await together((*counting, self._expire(self.client("forgetful"), counter), self._keep(ward)))

    async def _send(self, client: ScenarioClient, agent_id: str, line: str) -> Response | None:
        self.said += 1
        return await client.ask("POST", f"/v1/agents/{agent_id}/messages", {"input": f"note {self.said}\n{line}"})

    async def _count(self, client: ScenarioClient, agent_id: str, number: int) -> None:
        for turn in range(ROUNDS):
            await client.pause()
            if (number + turn) % 2:
                path = f"/v1/agents/{agent_id}/working-memory/count"
                self.fates.append(fate_of(await client.ask("PATCH", path, {"increment": 1})))
            else:
                answer = await self._send(client, agent_id, f'call {_TOOLS[0]} {{"key": "count", "increment": 1}}')
                done = answer is not None and answer.status == 200 and b'"status":"success"' in answer.body
                self.fates.append(Fate.done if done else Fate.unknown)

    async def _expire(self, client: ScenarioClient, agent_id: str) -> None:
        """Sets an entry with an expiry and reads it until long after."""
        path, gone = f"/v1/agents/{agent_id}/working-memory/soon", False
        if fate_of(await client.ask("PUT", path, {"value": 1, "ttl_seconds": TTL_S})) is not Fate.done:
            return
        for _ in range(12):
            await asyncio.sleep(4.0)
            answer = await client.ask("GET", path)
            if answer is not None and answer.status == 200 and gone:
                raise Broken("what is gone never comes back", f"an entry of {agent_id} was gone and is there again")
            gone = gone or (answer is not None and answer.status == 404)

    async def _keep(self, agent_id: str) -> None:
        keeper = self.client("keeper")
        for turn in range(ROUNDS):
            await keeper.pause()
            await self._live(keeper, agent_id, turn)
            document = await self._checkpoint(keeper, agent_id)
            await self._live(keeper, agent_id, turn + 100)
            if keeper.tosses(0.3):
                await keeper.ask("PATCH", f"/v1/agents/{agent_id}/reset-messages", {})
            before = await self._checkpoint(keeper, agent_id)
            fate = fate_of(await keeper.ask("POST", f"/v1/agents/{agent_id}/memory/restore", document))
            after = content(await self._checkpoint(keeper, agent_id))
            allowed = {
                Fate.done: (content(document),),
                Fate.refused: (content(before),),
                Fate.unknown: (content(document), content(before)),
            }[fate]
            if after not in allowed:
                raise Broken("a restore is whole or not at all", f"{agent_id}, {fate}: {after} is none of {allowed}")

    async def _live(self, client: ScenarioClient, agent_id: str, turn: int) -> None:
        place = f"/v1/agents/{agent_id}"
        await self._send(client, agent_id, f'call {_TOOLS[0]} {{"key": "ticks", "append": {turn}}}')
        await client.ask("PUT", f"{place}/working-memory/k{turn % 2}", {"value": {"turn": turn}})
        await client.ask("POST", f"{place}/archival-memory", {"text": f"passage {turn}", "tags": ["t"]})
        await client.ask("PATCH", f"{place}/core-memory/blocks/human", {"description": f"after {turn}"})

    async def _checkpoint(self, client: ScenarioClient, agent_id: str) -> Any:
        """Repeats the request until it works: a turn that a crash cut short comes to its end first."""
        for _ in range(TRIES_MAX):
            answer = await client.ask("GET", f"/v1/agents/{agent_id}/memory/checkpoint")
            if answer is not None and answer.status == 200:
                return answer.json()
            if answer is not None and answer.status not in (409, 503):
                raise Broken(
                    "a sound request is accepted", f"checkpoint of {agent_id}: {answer.status} {answer.body!r}"
                )
            await asyncio.sleep(1.0)
        raise Broken("the server recovers", f"no checkpoint of {agent_id} after {TRIES_MAX} tries")

    def check(self) -> None:
        super().check()
        for what, statement in _LOSSES.items():
            if found := self.machine.disk.query(statement):
                raise Broken("nothing is half there", f"{what}: {found}")
        rows = self.machine.disk.query(
            "SELECT value FROM working_memory WHERE agent_id = ? AND key = 'count'", self.agents[0]
        )
        counted = json.loads(rows[0][0]) if rows else 0
        sure, perhaps = self.fates.count(Fate.done), self.fates.count(Fate.unknown)
        if not sure <= counted <= sure + perhaps:
            raise Broken("every count is counted once", f"{counted} were counted, and {self.fates}")


def content(document: Any) -> str:
    """The memory without what a restore changes: versions and times of changes of blocks."""
    memory = json.loads(json.dumps(document["memory"]))
    copies = (block for thread in memory["conversations"] for block in thread["blocks"].values())
    for block in (*memory["blocks"], *copies):
        for name in ("version", "updated_at", "last_updated_by_id"):
            block.pop(name)
    return json.dumps(memory, sort_keys=True)


WORKINGS = scenario(
    "working-memory-and-checkpoints",
    WorkingMemoryUse,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.03),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.005),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.03),
        Aim(Fault.storage_read_fail, "database.read", rate=0.03),
        Aim(Fault.clock_jump, "clock.now", rate=0.03),
        Aim(Fault.crash_before_write, "database.begin", rate=0.02, times_max=1),
        Aim(Fault.crash_during_transaction, "database.statement", rate=0.008, times_max=1),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.02, times_max=1),
    ),
    swarm=(Fault.disk_full, Fault.storage_busy, Fault.storage_latency, Fault.cpu_starvation, Fault.clock_skew),
)
