"""Long writes in small pieces while the disk fails and the power is cut: restores, resets and deletions.

A restore is whole or not at all for everyone who looks, also when it takes many transactions; a deleted agent or
archive is gone at once; and parallel requests never pass a quota.
"""

from dataclasses import replace
from typing import Any

from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.core.settings.settings import Settings
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.index_checks import index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie, boot
from kelpie.sim.scenarios.memory.working_memory import WorkingMemoryUse
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import scenario, together
from kelpie.world.world import World

PIECE_ROWS = 3
LOOKS = 12
SHELVES, BOOKS = 2, 3 * PIECE_ROWS + 1  # archives, and the passages of each
AGENTS_MAX = 5  # the quota: two of them are there before


class LongChanges(WorkingMemoryUse):
    """The agents of `WorkingMemoryUse`, and clients that create and delete agents up to the quota."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.made: dict[str, Fate] = {}  # agents that were created, and whether they were deleted
        self.shelves: dict[str, Fate] = {}  # likewise the archives

    async def act(self) -> None:
        crowd = (self._crowd(self.client(f"founder-{number}")) for number in range(3))
        await together(
            (super().act(), self._look(self.client("looker")), self._shelve(self.client("librarian")), *crowd)
        )

    async def _look(self, client: ScenarioClient) -> None:
        """Whoever looks at a memory sees a whole one: with the message that every context begins with."""
        for _ in range(LOOKS):
            await client.pause(1.0)
            for agent_id in self.agents[1:2]:  # the one whose memory is restored
                answer = await client.ask("GET", f"/v1/agents/{agent_id}/memory/checkpoint")
                if answer is None or answer.status != 200:
                    continue
                memory = answer.json()["memory"]
                roles = {each["id"]: each["role"] for each in memory["messages"]}
                shown = [roles.get(each) for each in memory["contexts"].get("", ())]
                if shown[:1] != ["system"] or None in shown or not memory["blocks"]:
                    raise Broken("a memory is seen as a whole", f"{agent_id}: {shown}, {len(memory['blocks'])} blocks")

    async def _crowd(self, client: ScenarioClient) -> None:
        while len(self.agents) < 2:  # else the crowd could take their places
            await client.pause()
        await client.insist("PUT", f"/v1/kelpie/quotas/{DEFAULT_ORGANIZATION}", {"agents": AGENTS_MAX})
        for number in range(3):
            await client.pause()
            answer = await client.ask("POST", "/v1/agents/", {"name": f"crowd {number}"})
            if answer is None or answer.status != 200:
                continue
            agent_id = answer.json()["id"]
            self.made[agent_id] = Fate.refused
            await client.ask("POST", f"/v1/agents/{agent_id}/messages", {"input": "hello"})
            if client.tosses(0.7):
                self.made[agent_id] = fate = fate_of(await client.ask("DELETE", f"/v1/agents/{agent_id}"))
                if fate is Fate.done:
                    await self._is_gone(client, agent_id)

    async def _is_gone(self, client: ScenarioClient, agent_id: str) -> None:
        """An acknowledged deletion is seen at once, however many rows are left."""
        for path in (f"/v1/agents/{agent_id}", f"/v1/agents/{agent_id}/messages"):
            answer = await client.ask("GET", path)
            if answer is not None and answer.status == 200:
                raise Broken("a deleted agent is gone at once", f"{path} was answered")
        answer = await client.ask("GET", f"/v1/runs/?agent_id={agent_id}")
        if answer is not None and answer.status == 200 and answer.json():
            raise Broken("a deleted agent is gone at once", f"{agent_id} still has runs")

    async def _shelve(self, client: ScenarioClient) -> None:
        """Fills archives and deletes them: none of their passages is found from the answer on."""
        for number in range(SHELVES):
            await client.pause()
            answer = await client.ask("POST", "/v1/archives/", {"name": f"shelf {number}"})
            if answer is None or answer.status != 200:
                continue
            archive_id, word = answer.json()["id"], f"shelf{number}"
            self.shelves[archive_id] = Fate.refused
            texts = [{"text": f"{word} book {book}"} for book in range(BOOKS)]
            await client.ask("POST", f"/v1/archives/{archive_id}/passages/batch", {"passages": texts})
            self.shelves[archive_id] = fate = fate_of(await client.ask("DELETE", f"/v1/archives/{archive_id}"))
            answer = await client.ask("POST", "/v1/passages/search", {"query": word})
            found = answer.json() if answer is not None and answer.status == 200 else []
            if fate is Fate.done and any(each["passage"]["archive_id"] == archive_id for each in found):
                raise Broken("a deleted archive is gone at once", f"passages of {archive_id} were found")

    def check(self) -> None:
        super().check()
        index_is_whole(self.machine.disk)
        shelves = [row[0] for row in self.machine.disk.query("SELECT id FROM archives")]
        for archive_id, deleted in self.shelves.items():
            if (deleted is Fate.done and archive_id in shelves) or (
                deleted is Fate.refused and archive_id not in shelves
            ):
                raise Broken("what was acknowledged holds", f"{archive_id}, deletion {deleted}, is in {shelves}")
        there = [row[0] for row in self.machine.disk.query("SELECT id FROM agents WHERE organization_id <> ''")]
        if len(there) > AGENTS_MAX:
            raise Broken("a quota is never passed", f"there are {len(there)} agents, and {AGENTS_MAX} may be")
        for agent_id, deleted in self.made.items():
            if (deleted is Fate.done and agent_id in there) or (deleted is Fate.refused and agent_id not in there):
                raise Broken("what was acknowledged holds", f"{agent_id}, deletion {deleted}, is in {there}")


async def boot_in_small_pieces(world: World, settings: Settings) -> RunningKelpie:
    """A server for which three rows are many."""
    running = await boot(world, settings)
    running.kelpie.runtime.piece_size.rows = PIECE_ROWS
    return running


LONG_CHANGES = replace(
    scenario(
        "long-changes-of-memory",
        LongChanges,
        faults=(
            Aim(Fault.storage_write_fail, "database.commit", rate=0.01),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
            Aim(Fault.storage_read_fail, "database.read", rate=0.01),
            Aim(Fault.crash_before_write, "database.begin", rate=0.01, times_max=1),
            Aim(Fault.crash_during_transaction, "database.statement", rate=0.003, times_max=1),
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.01, times_max=2),
        ),
        swarm=(Fault.disk_full, Fault.storage_busy, Fault.storage_latency, Fault.cpu_starvation),
    ),
    boot=boot_in_small_pieces,
)
