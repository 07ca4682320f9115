"""Passages stored, searched and removed while disk and embedding models misbehave.

Stored means durable and found at once, by words and by meaning; a passage is never half there, whatever fails between
its row, its text and its vectors. A search that has to do without meaning says so.
"""

from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.ports.embedder import HANDLE
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.checks.index_checks import Index, all_embedded, index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.pending_work import RUNS, VECTORS
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 3
OTHERS = ("openai/text-embedding-3-small", "openai/text-embedding-ada-002")
MODELS = (HANDLE, *OTHERS)
TOOLS = ("archival_memory_insert", "archival_memory_search", "conversation_search")


class ArchiveUse(ServerScenario):
    """Three clients; each has an archive, all of them write to and search the first one."""

    changes_models = False

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.archives: list[str] = []
        self.told: dict[str, tuple[str, Fate]] = {}  # text -> where it was put, and what became of it
        self.removed: dict[str, Fate] = {}
        self.without_meaning = 0

    async def act(self) -> None:
        maker = self.client("maker")
        for number in range(3):
            made = await maker.insist("POST", "/v1/archives/", {"name": f"shelf {number}"})
            self.archives.append(made["id"])
        await together(self._work(client, number) for number, client in enumerate(self.clients(3)))

    async def _work(self, client: ScenarioClient, number: int) -> None:
        for turn in range(ROUNDS):
            await client.pause()
            archive = self.archives[number if client.tosses(0.6) else 0]
            texts = [f"memo{number}x{turn}y{one} kelp and oysters" for one in range(client.picks((1, 1, 3)))]
            fate = await self._put(client, archive, texts)
            if fate is Fate.done:
                await self._finds(client, archive, texts[0])
            if self.changes_models and client.tosses(0.5):
                await client.ask("PATCH", f"/v1/archives/{archive}", {"embedding": client.picks(MODELS)})
            if client.tosses(0.2) and fate is Fate.done:
                await self._remove(client, archive, texts[0])

    async def _put(self, client: ScenarioClient, archive: str, texts: list[str]) -> Fate:
        bodies = [{"text": text, "tags": ["memo"]} for text in texts]
        if len(texts) == 1:
            response = await client.ask("POST", f"/v1/archives/{archive}/passages", bodies[0])
        else:
            response = await client.ask("POST", f"/v1/archives/{archive}/passages/batch", {"passages": bodies})
        fate = fate_of(response)
        self.told |= dict.fromkeys(texts, (archive, fate))
        return fate

    async def _finds(self, client: ScenarioClient, archive: str, text: str) -> None:
        """Every stored passage is found at once, by its words and by its meaning."""
        for mode in ("hybrid", "fts", "vector"):
            body = {"query": text, "archive_id": archive, "limit": 100, "search_mode": mode}
            may_lack = self._may_lack(mode)  # it may be embedded before the answer comes
            response = await client.ask("POST", "/v1/passages/search", body)
            if response is None or response.status != 200:
                continue
            found = [each["passage"]["text"] for each in response.json()]
            if text not in found and text not in self.removed and not (may_lack or self._may_lack(mode)):
                raise Broken("what is acknowledged is found", f"{text} is not among {found} ({mode})")
            if mode != "fts" and found:
                self._check_mode(mode, response)

    def _may_lack(self, mode: str) -> bool:
        """By meaning alone, a passage that could not be embedded yet cannot be found; nothing else may be missing."""
        return mode == "vector" and self._bare()

    def _bare(self) -> bool:
        return bool(self.machine.disk.query("SELECT 1 FROM search_items WHERE kind = 'passage' AND model IS NULL"))

    def _check_mode(self, mode: str, response: Response) -> None:
        told: dict[str, Any] = response.json()[0]["metadata"]
        if told["search_mode"] == mode:
            return
        self.without_meaning += 1
        if told["search_mode"] != "fts" or "search_note" not in told:
            raise Broken("a search without meaning says so", f"{mode} was answered with {told}")

    async def _remove(self, client: ScenarioClient, archive: str, text: str) -> None:
        listed = await client.ask("POST", "/v1/passages/search", {"archive_id": archive, "limit": 100})
        rows = [each["passage"] for each in listed.json()] if listed is not None and listed.status == 200 else []
        for row in rows:
            if row["text"] == text:
                self.removed[text] = Fate.unknown
                self.removed[text] = fate_of(await client.ask("DELETE", f"/v1/archives/{archive}/passages/{row['id']}"))

    async def settle(self) -> None:
        client = self.client("visitor")
        for text, (archive, _) in self.told.items():
            if self._wanted(text) == (1,):
                await self._finds(client, archive, text)
        await super().settle()

    def _wanted(self, text: str) -> tuple[int, ...]:
        """The allowed numbers of copies of a text on the disk."""
        fate, removed = self.told[text][1], self.removed.get(text, Fate.refused)
        if fate is Fate.refused or removed is Fate.done:
            return (0,)
        return (1,) if fate is Fate.done and removed is Fate.refused else (0, 1)

    def check(self) -> None:
        super().check()
        index_is_whole(self.machine.disk)
        all_embedded(self.machine.disk, HANDLE)
        for text in self.told:
            stored = self.machine.disk.query("SELECT count(*) FROM passages WHERE text = ?", text)[0][0]
            if stored not in self._wanted(text):
                raise Broken("a passage is as its client was told", f"{text} {self.told[text]} is there {stored} times")


class ArchiveModelChanges(ArchiveUse):
    """The same, while the archives' models are changed back and forth."""

    changes_models = True

    def _may_lack(self, mode: str) -> bool:
        """A passage whose archive's old model failed has only a vector of the new one until the change is over."""
        changing = "SELECT 1 FROM search_scopes WHERE mixed AND kind = 'passage'"
        return mode == "vector" and (self._bare() or bool(self.machine.disk.query(changing)))


_WRITES = (
    Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
    Aim(Fault.storage_write_fail, "database.statement", rate=0.01),
    Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
    Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
    Aim(Fault.storage_read_fail, "database.read", rate=0.05),
    Aim(Fault.disk_full, "database.statement", rate=0.01),
    Aim(Fault.disk_full, "database.commit", rate=0.05),
    Aim(Fault.crash_during_transaction, "database.statement", rate=0.01, times_max=2),
    Aim(Fault.crash_during_transaction, "database.commit", rate=0.05, times_max=2),
    Aim(Fault.crash_after_write, "database.acknowledge", rate=0.05, times_max=2),
)

PASSAGES = scenario(
    "passages-under-storage-faults",
    ArchiveUse,
    faults=(
        *_WRITES,
        Aim(Fault.embedding_fail, "embedding.local", rate=0.1),
        Aim(Fault.embedding_timeout, "embedding.local", rate=0.05),
        Aim(Fault.vector_search_fail, "search.passages", rate=0.1),
    ),
    swarm=(Fault.storage_busy, Fault.storage_latency, Fault.crash_before_write, Fault.network_delay),
    quiet_s=600.0,
    pending=(RUNS, VECTORS),
    watches=(Index,),
)

PROCESS = scenario(
    "embedding-process-crashes",
    ArchiveUse,
    faults=(
        Aim(Fault.process_crash, "embedding.process", rate=0.3),
        Aim(Fault.embedding_timeout, "embedding.local", rate=0.05),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.03),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.03, times_max=3),
        Aim(Fault.crash_during_transaction, "database.commit", rate=0.03, times_max=3),
    ),
    swarm=(Fault.storage_busy, Fault.storage_latency, Fault.cpu_starvation),
    quiet_s=600.0,
    pending=(RUNS, VECTORS),
    watches=(Index,),
)

EMBEDDINGS = scenario(
    "embedding-faults",
    ArchiveModelChanges,
    faults=(
        Aim(Fault.embedding_timeout, "embedding.local", rate=0.1),
        Aim(Fault.embedding_timeout, "embedding.provider", rate=0.3),
        Aim(Fault.embedding_fail, "embedding.local", rate=0.2),
        Aim(Fault.embedding_fail, "embedding.provider", rate=0.2),
        Aim(Fault.embedding_fail, "embedding.missing", rate=0.1),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.03, times_max=3),
        Aim(Fault.crash_during_transaction, "database.commit", rate=0.03, times_max=3),
    ),
    swarm=(Fault.storage_write_fail, Fault.storage_read_fail, Fault.storage_busy, Fault.network_packet_loss),
    quiet_s=600.0,
    watches=(Index,),
)
