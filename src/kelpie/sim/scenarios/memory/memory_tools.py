"""Agents that store and search memories with their own tools, while the search by meaning and the power fail.

A tool's passage is stored exactly once, with its vectors, as its result says; a search that has to do without meaning
says so to the model and finds by words; and the loop's own properties hold.
"""

import json
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.embedder import HANDLE
from kelpie.sim.scenarios.basic.crashes import cuts
from kelpie.sim.scenarios.checks.index_checks import Index, all_embedded, index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ClientAnswer, ScenarioClient
from kelpie.sim.scenarios.fixtures.pending_work import RUNS, VECTORS
from kelpie.sim.scenarios.memory.archives import TOOLS, ArchiveUse
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

MESSAGES = 3
STORE = 'call archival_memory_insert {"content": "{token} likes sea urchins"}'
FIND = 'call archival_memory_search {"query": "{token} sea urchins"}'
RECALL = 'call conversation_search {"query": "{token}"}'
SCRIPTS = ((STORE, FIND), (STORE, RECALL), (f"{STORE} & {FIND}",), (RECALL, STORE, FIND))
WORDS = "full_text"


class MemoryTools(ServerScenario):
    """Two clients talk to two agents that store and search."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.by_words = 0

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent", "memgpt_v2_agent"), tools=TOOLS)
        await together(self._talk(client, number) for number, client in enumerate(self.clients(2)))

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(MESSAGES):
            await client.pause()
            agent_id = self.agents[(number + turn) % 2]
            script = SCRIPTS[(number + turn + self.machine.loop.seed) % len(SCRIPTS)]
            heard = await client.say(agent_id, *script, stream=client.tosses(0.4))
            self._searched(heard)

    def _searched(self, heard: ClientAnswer) -> None:
        """Earlier passages are found, and a search by words alone says that it is one."""
        stored = heard.results("archival_memory_insert")
        for result in heard.results("archival_memory_search"):
            found = json.loads(result)
            if stored and not any(heard.said.token in each["content"] for each in found["results"]):
                raise Broken("what an agent stored is found", f"{heard.said.token}: {result}")
            if found["search_mode"] == WORDS:
                self.by_words += 1
                if "by words (full text), not by meaning" not in found["message"]:
                    raise Broken("a search without meaning says so", result)

    async def settle(self) -> None:
        all_embedded(self.machine.disk, HANDLE)
        await super().settle()

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        index_is_whole(disk)
        stored = dict(disk.query("SELECT id, text FROM passages"))
        told = set[str]()
        for (returned,) in disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'"):
            for result in json.loads(returned):
                if result["name"] == "archival_memory_insert" and result["ok"]:
                    told.add(result["text"].removeprefix("Stored in archival memory as ").rstrip("."))
        if told != set(stored):
            raise Broken("a tool's passage is there as its result says", f"{sorted(told ^ set(stored))}")
        if len(set(stored.values())) != len(stored):
            raise Broken("a tool's passage is there once", f"{sorted(stored.values())}")


class SearchWithoutMeaning(MemoryTools):
    """The search by meaning fails again and again, for agents and for clients."""

    async def act(self) -> None:
        await super().act()
        archives = ArchiveUse(self.machine)
        await archives.act()
        self.by_words += archives.without_meaning

    def check(self) -> None:
        ServerScenario.check(self)
        index_is_whole(self.machine.disk)
        fired = self.machine.faults.fired(Fault.vector_search_fail)
        if fired and not self.by_words:
            raise Broken("a search without meaning says so", f"{fired} searches failed, and nobody was told")


MEMORY_CRASHES = scenario(
    "memory-crashes",
    MemoryTools,
    faults=(
        Aim(Fault.embedding_fail, "embedding.local", rate=0.15),
        Aim(Fault.embedding_timeout, "embedding.local", rate=0.1),
        Aim(Fault.vector_search_fail, "search.passages", rate=0.3),
    ),
    plots=(*cuts("open", 2), *cuts("step", 1, 3, 4, 6)),
    swarm=(Fault.storage_write_fail, Fault.storage_busy, Fault.crash_after_write, Fault.llm_malformed),
    quiet_s=600.0,
    pending=(RUNS, VECTORS),
    watches=(Index,),
)

VECTOR_SEARCH = scenario(
    "vector-search-fails",
    SearchWithoutMeaning,
    faults=(
        Aim(Fault.vector_search_fail, "search.passages", rate=0.5),
        Aim(Fault.vector_search_fail, "search.messages", rate=0.5),
        Aim(Fault.embedding_fail, "embedding.local", rate=0.05),
    ),
    swarm=(Fault.storage_read_fail, Fault.storage_write_fail, Fault.crash_after_write, Fault.network_delay),
    quiet_s=120.0,
    watches=(Index,),
)
