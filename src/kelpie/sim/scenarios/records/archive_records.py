"""Archives, passages and identities created, linked and deleted by several clients at once, while the disk misbehaves.

An acknowledged thing exists and can be found; a refused one does not exist at all; only where the server says that it
does not know may either be. Nothing is ever half there: a batch without some of its passages, an archive's search
entries without the archive, a second archive of an agent. With an agent goes the archive that was made for it, unless
another agent uses it, and no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from kelpie.storage.rows.piece_size import ROWS_MAX

ROUNDS = 2
BATCH = 3
LARGE = ROWS_MAX + 1  # what is not removed in one go
FOUND_MAX = 100
KEY = "everybody"
LEAVE_TRIES = 100

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
        self.archives: list[RequestedArchive] = []
        self.told: dict[str, Fate] = {}  # text -> what became of it

    async def act(self) -> None:
        await self.make_agents(3)
        works = (self._work(client, number) for number, client in enumerate(self.clients(4)))
        await together((*works, self._receive(self.client("host"))))

    async def _receive(self, client: ScenarioClient) -> None:
        """In some runs there are two guests, of which one has an archive of its own. The other one uses the same,
        another one, or none. They leave, and nothing else does."""
        if client.tosses(0.5):
            return
        owner, other = [(await client.insist("POST", "/v1/agents/", {"name": name}))["id"] for name in ("guest", "two")]
        text = "memo of a guest"
        body = {"text": text, "tags": ["memo"]}
        kept = fate_of(await client.ask("POST", f"/v1/agents/{owner}/archival-memory", body))
        own = [each["id"] for each in await client.insist("GET", f"/v1/archives/?agent_id={owner}")]
        lent = await self._make(client, "shelf-of-two")
        used = client.picks([*own, *([lent.id] if lent.id else ()), None])
        if used is not None:
            await client.insist("PATCH", f"/v1/agents/{other}/archives/attach/{used}")
        await self._leave(client, owner)
        self.told[text] = kept if used in own else Fate.refused
        if used not in own:
            await self._leave(client, other)

    async def _leave(self, client: ScenarioClient, agent_id: str) -> None:
        """Deletes an agent; one that is gone already was deleted by a try whose answer was lost."""
        for _ in range(LEAVE_TRIES):
            answer = await client.ask("DELETE", f"/v1/agents/{agent_id}")
            if answer is not None and answer.status in (200, 404):
                return
            await client.pause()
        raise Broken("the server recovers", f"{agent_id} could not be deleted")

    async def _work(self, client: ScenarioClient, number: int) -> None:
        agent_id = self.agents[number % 2]
        for turn in range(ROUNDS):
            await client.pause()
            archive = await self._make(client, f"shelf-{number}-{turn}")
            await self._write_memo(client, f"memo{number}x{turn}")
            await self._know(client, agent_id, number + turn)
            if archive.id is not None:
                archive.size = LARGE if (number, turn) == (0, 0) else BATCH
                await self._fill(client, archive)
                await client.ask("PATCH", f"/v1/agents/{agent_id}/archives/attach/{archive.id}")
                await self._find(client, archive)
                if archive.size == LARGE or client.tosses(0.5):
                    archive.removed = fate_of(await client.ask("DELETE", f"/v1/archives/{archive.id}"))
                    await self._gone(client, archive)

    async def _make(self, client: ScenarioClient, name: str) -> RequestedArchive:
        response = await client.ask("POST", "/v1/archives/", {"name": name})
        archive = RequestedArchive(name, fate_of(response))
        if response is not None and archive.made is Fate.done:
            archive.id = response.json()["id"]
        self.archives.append(archive)
        return archive

    async def _fill(self, client: ScenarioClient, archive: RequestedArchive) -> None:
        texts = [{"text": f"{archive.name} {number}", "tags": [archive.name]} for number in range(archive.size)]
        response = await client.ask("POST", f"/v1/archives/{archive.id}/passages/batch", {"passages": texts})
        archive.filled = fate_of(response)

    async def _write_memo(self, client: ScenarioClient, text: str) -> None:
        """Writes into the diary, whose archive is made by the first client to write."""
        body = {"text": text, "tags": ["memo"]}
        self.told[text] = fate_of(await client.ask("POST", f"/v1/agents/{self.agents[2]}/archival-memory", body))

    async def _know(self, client: ScenarioClient, agent_id: str, number: int) -> None:
        body: Mapping[str, Any] = {"identifier_key": KEY, "name": f"name {number}", "identity_type": "user"}
        response = await client.ask("PUT", "/v1/identities/", {**body, "agent_ids": [agent_id]})
        if response is not None and response.status == 200 and client.tosses(0.3):
            await client.ask("DELETE", f"/v1/identities/{response.json()['id']}")

    async def _find(self, client: ScenarioClient, archive: RequestedArchive) -> None:
        found = await self._search(client, archive)
        if found is not None and archive.filled is not Fate.unknown and found != self._filled(archive):
            raise Broken("what is acknowledged is found", f"{found} passages of {archive}")

    async def _gone(self, client: ScenarioClient, archive: RequestedArchive) -> None:
        response = await client.ask("GET", f"/v1/archives/{archive.id}")
        if archive.removed is Fate.done and response is not None and response.status == 200:
            raise Broken("what was removed is gone", f"{archive}")
        if archive.removed is Fate.refused and response is not None and response.status == 404:
            raise Broken("what is refused is not done", f"{archive}")

    async def _search(self, client: ScenarioClient, archive: RequestedArchive) -> int | None:
        body = {"query": archive.name, "tags": [archive.name], "archive_id": archive.id, "limit": FOUND_MAX}
        response = await client.ask("POST", "/v1/passages/search", body)
        return None if response is None or response.status != 200 else len(response.json())

    def _filled(self, archive: RequestedArchive) -> int:
        return min(archive.size, FOUND_MAX) if archive.filled is Fate.done else 0

    def check(self) -> None:
        super().check()
        for what, statement in _HALVES.items():
            if found := self.machine.disk.query(statement):
                raise Broken("nothing is half there", f"{what}: {found}")
        for archive in self.archives:
            self._matches_answers(archive)
        self._memos_match_answers()
        keys = self.machine.disk.query("SELECT count(*) FROM identities WHERE identifier_key = ?", KEY)[0][0]
        if keys > 1:
            raise Broken("a key is there once", f"{keys} identities have the key")

    def _matches_answers(self, archive: RequestedArchive) -> None:
        disk = self.machine.disk
        rows = disk.query("SELECT id FROM archives WHERE name = ?", archive.name)
        filled = disk.query("SELECT count(*) FROM passages WHERE text LIKE ?", f"{archive.name} %")[0][0]
        wanted = {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}[archive.made]
        if archive.removed is not Fate.refused:
            wanted = (0,) if archive.removed is Fate.done else (0, 1)
        if len(rows) not in wanted:
            raise Broken("a record is as its client was told", f"{len(rows)} archives of {archive}")
        whole = {Fate.done: (archive.size,), Fate.refused: (0,), Fate.unknown: (0, archive.size)}[archive.filled]
        if filled not in (whole if rows else (0,)):
            raise Broken("a batch is stored as a whole", f"{filled} passages of {archive}")

    def _memos_match_answers(self) -> None:
        stored = dict(self.machine.disk.query("SELECT text, count(*) FROM passages GROUP BY text ORDER BY text"))
        for text, fate in self.told.items():
            if stored.get(text, 0) not in {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}[fate]:
                told = f"{text} was {fate} and is there {stored.get(text, 0)} times"
                raise Broken("a passage is as its client was told", told)
        made = self.machine.disk.query(
            "SELECT id FROM archives WHERE name NOT LIKE 'shelf-%' AND name NOT LIKE 'guest%'"
        )
        kept = self.machine.disk.query(
            "SELECT l.archive_id FROM agent_archives l JOIN archives a ON a.id = l.archive_id "
            "WHERE l.is_owner AND a.name NOT LIKE 'guest%'"
        )
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
