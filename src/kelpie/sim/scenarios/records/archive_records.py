"""Archives, passages and identities created, linked and deleted by several clients at once, while the disk misbehaves.

An acknowledged thing exists and can be found; a refused one does not exist at all; only where the server says that it
does not know may either be. Nothing is ever half there: a batch without some of its passages, an archive's search
entries without the archive, a second archive of an agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.server_scenario import ServerScenario, scenario, together
from kelpie.storage.archives.removal import PIECE

ROUNDS = 2
BATCH = 3
LARGE = PIECE + 1  # what is not removed in one go
FOUND_MAX = 100
KEY = "everybody"

_HALVES = {
    "an archive that is not swept up": "SELECT id FROM archives WHERE removed",
    "a passage without a search entry": """
        SELECT id FROM passages WHERE id NOT IN (SELECT item_id FROM search_items WHERE kind = 'passage')""",
    "a search entry without a passage": """
        SELECT item_id FROM search_items WHERE kind = 'passage' AND item_id NOT IN (SELECT id FROM passages)""",
    "a part of the text index of no archive": """
        SELECT scope FROM search_segments WHERE kind = 'passage' AND scope NOT IN (SELECT id FROM archives)""",
    "a passage without an archive": "SELECT id FROM passages WHERE archive_id NOT IN (SELECT id FROM archives)",
    "a tag without a passage": "SELECT tag FROM passage_tags WHERE passage_id NOT IN (SELECT id FROM passages)",
    "a passage without its tag": "SELECT id FROM passages WHERE id NOT IN (SELECT passage_id FROM passage_tags)",
    "a link without an end": """
        SELECT identity_id FROM agent_identities
        WHERE identity_id NOT IN (SELECT id FROM identities) OR agent_id NOT IN (SELECT id FROM agents)""",
}


class Fate(StrEnum):
    done = "done"
    refused = "refused"
    unknown = "unknown"


def fate_of(response: Response | None) -> Fate:
    """The outcome of a request as its client knows it. The server sets the header when it does not know itself."""
    if response is None:
        return Fate.unknown
    if response.status < 300:
        return Fate.done
    in_doubt = response.status >= 500 and response.headers.get("x-should-retry") == "false"
    return Fate.unknown if in_doubt else Fate.refused


@dataclass(slots=True)
class RequestedArchive:
    """An archive that a client asked for, and its one batch of passages."""

    name: str
    made: Fate
    id: str | None = None
    size: int = BATCH
    filled: Fate = Fate.refused
    removed: Fate = Fate.refused


class ArchiveRecords(ServerScenario):
    """Four clients; two of them share each of the first agents, and all of them the diary of the last."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.shelves: list[RequestedArchive] = []
        self.told: dict[str, Fate] = {}  # text -> what became of it

    async def act(self) -> None:
        await self.make_agents(3)
        await together(self._work(client, number) for number, client in enumerate(self.clients(4)))

    async def _work(self, client: ScenarioClient, number: int) -> None:
        agent_id = self.agents[number % 2]
        for turn in range(ROUNDS):
            await client.pause()
            shelf = await self._make(client, f"shelf-{number}-{turn}")
            await self._write_memo(client, f"memo{number}x{turn}")
            await self._know(client, agent_id, number + turn)
            if shelf.id is not None:
                shelf.size = LARGE if (number, turn) == (0, 0) else BATCH
                await self._fill(client, shelf)
                await client.ask("PATCH", f"/v1/agents/{agent_id}/archives/attach/{shelf.id}")
                await self._find(client, shelf)
                if shelf.size == LARGE or client.tosses(0.5):
                    shelf.removed = fate_of(await client.ask("DELETE", f"/v1/archives/{shelf.id}"))
                    await self._gone(client, shelf)

    async def _make(self, client: ScenarioClient, name: str) -> RequestedArchive:
        response = await client.ask("POST", "/v1/archives/", {"name": name})
        shelf = RequestedArchive(name, fate_of(response))
        if response is not None and shelf.made is Fate.done:
            shelf.id = response.json()["id"]
        self.shelves.append(shelf)
        return shelf

    async def _fill(self, client: ScenarioClient, shelf: RequestedArchive) -> None:
        texts = [{"text": f"{shelf.name} {number}", "tags": [shelf.name]} for number in range(shelf.size)]
        response = await client.ask("POST", f"/v1/archives/{shelf.id}/passages/batch", {"passages": texts})
        shelf.filled = fate_of(response)

    async def _write_memo(self, client: ScenarioClient, text: str) -> None:
        """Writes into the diary, whose archive is made by the first client to write."""
        body = {"text": text, "tags": ["memo"]}
        self.told[text] = fate_of(await client.ask("POST", f"/v1/agents/{self.agents[2]}/archival-memory", body))

    async def _know(self, client: ScenarioClient, agent_id: str, number: int) -> None:
        body: Mapping[str, Any] = {"identifier_key": KEY, "name": f"name {number}", "identity_type": "user"}
        response = await client.ask("PUT", "/v1/identities/", {**body, "agent_ids": [agent_id]})
        if response is not None and response.status == 200 and client.tosses(0.3):
            await client.ask("DELETE", f"/v1/identities/{response.json()['id']}")

    async def _find(self, client: ScenarioClient, shelf: RequestedArchive) -> None:
        found = await self._search(client, shelf)
        if found is not None and shelf.filled is not Fate.unknown and found != self._filled(shelf):
            raise Broken("what is acknowledged is found", f"{found} passages of {shelf}")

    async def _gone(self, client: ScenarioClient, shelf: RequestedArchive) -> None:
        response = await client.ask("GET", f"/v1/archives/{shelf.id}")
        if shelf.removed is Fate.done and response is not None and response.status == 200:
            raise Broken("what was removed is gone", f"{shelf}")
        if shelf.removed is Fate.refused and response is not None and response.status == 404:
            raise Broken("what is refused is not done", f"{shelf}")

    async def _search(self, client: ScenarioClient, shelf: RequestedArchive) -> int | None:
        body = {"query": shelf.name, "tags": [shelf.name], "archive_id": shelf.id, "limit": FOUND_MAX}
        response = await client.ask("POST", "/v1/passages/search", body)
        return None if response is None or response.status != 200 else len(response.json())

    def _filled(self, shelf: RequestedArchive) -> int:
        return min(shelf.size, FOUND_MAX) if shelf.filled is Fate.done else 0

    def check(self) -> None:
        super().check()
        for what, statement in _HALVES.items():
            if found := self.machine.disk.query(statement):
                raise Broken("nothing is half there", f"{what}: {found}")
        for shelf in self.shelves:
            self._matches_answers(shelf)
        self._memos_match_answers()
        keys = self.machine.disk.query("SELECT count(*) FROM identities WHERE identifier_key = ?", KEY)[0][0]
        if keys > 1:
            raise Broken("a key is there once", f"{keys} identities have the key")

    def _matches_answers(self, shelf: RequestedArchive) -> None:
        disk = self.machine.disk
        rows = disk.query("SELECT id FROM archives WHERE name = ?", shelf.name)
        filled = disk.query("SELECT count(*) FROM passages WHERE text LIKE ?", f"{shelf.name} %")[0][0]
        wanted = {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}[shelf.made]
        if shelf.removed is not Fate.refused:
            wanted = (0,) if shelf.removed is Fate.done else (0, 1)
        if len(rows) not in wanted:
            raise Broken("a record is as its client was told", f"{len(rows)} archives of {shelf}")
        whole = {Fate.done: (shelf.size,), Fate.refused: (0,), Fate.unknown: (0, shelf.size)}[shelf.filled]
        if filled not in (whole if rows else (0,)):
            raise Broken("a batch is stored as a whole", f"{filled} passages of {shelf}")

    def _memos_match_answers(self) -> None:
        stored = dict(self.machine.disk.query("SELECT text, count(*) FROM passages GROUP BY text ORDER BY text"))
        for text, fate in self.told.items():
            if stored.get(text, 0) not in {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}[fate]:
                told = f"{text} was {fate} and is there {stored.get(text, 0)} times"
                raise Broken("a passage is as its client was told", told)
        made = self.machine.disk.query("SELECT id FROM archives WHERE name NOT LIKE 'shelf-%'")
        kept = self.machine.disk.query("SELECT archive_id FROM agent_archives WHERE is_owner")
        if made != kept or len(made) > 1:
            raise Broken("an agent has one archive", f"made by themselves: {made}, in use: {kept}")


RECORDS = scenario(
    "records-under-storage-faults",
    ArchiveRecords,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.01),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
        Aim(Fault.storage_busy, "database.commit", rate=0.05),
        Aim(Fault.storage_read_fail, "database.read", rate=0.05),
        Aim(Fault.storage_latency, "database.write", rate=0.05),
    ),
    swarm=(Fault.disk_full, Fault.crash_after_write, Fault.network_delay, Fault.cpu_starvation),
)
