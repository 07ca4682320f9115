"""Files uploaded, deleted and detached while they are processed, with the power cut at every stage, and files opened by
several turns at once.

An acknowledged upload is processed in the end, or has failed with a reason: no file is left half done. A file can be
found only when it is completed, and then as a whole. An agent never has more files open than it may have, and its
prompt shows those that are open.
"""

import re
from dataclasses import replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import Response
from kelpie.sim.ports.disk import Disk
from kelpie.sim.scenarios.checks.index_checks import index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.memory.long_changes import boot_in_small_pieces
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

PEOPLE = 3
UPLOADS = 3
LINES = 12  # of a file: several passages, in several pieces
OPEN_MAX = 2
SEARCHES = 4
WHOLE = "a file is found as a whole or not at all"
DONE = "no file is left half processed"
LIMIT = "no agent has more files open than it may"
_FOUND = re.compile(r"=== shelf-\d/(\S+) \(passage")
_OPEN = """
    SELECT v.agent_id, count(*) FROM file_views v JOIN files f ON f.id = v.file_id AND f.status = 'completed'
    WHERE v.is_open AND NOT f.removed GROUP BY v.agent_id HAVING count(*) > ?"""
_HALF = """
    SELECT f.id FROM files f WHERE f.status = 'completed' AND NOT f.removed AND (
        f.indexed <> f.passages
        OR (SELECT count(*) FROM file_passages p WHERE p.file_id = f.id) <> f.passages
        OR (SELECT count(*) FROM search_items i WHERE i.thread = f.id) <> f.passages)"""


def whole_files(disk: Disk) -> None:
    """After every commit a completed file has all of its passages, all of them in the index, and few files are open."""
    if half := disk.query(_HALF):
        raise Broken(WHOLE, f"{half[:3]} are completed without all of their passages")
    if crowded := disk.query(_OPEN, OPEN_MAX):
        raise Broken(LIMIT, f"{crowded[:3]}")


class _Watch:
    def __call__(self, disk: Disk) -> None:
        whole_files(disk)


class FileUploads(ServerScenario):
    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.folders: list[str] = []
        self.sent: dict[str, Fate] = {}  # uploads by the name of the file
        self.deleted: set[str] = set()  # names of files that a client has asked to delete
        self.replaced: set[str] = set()  # or to replace: one that was found may be another one now
        self.unknown = 0  # uploads and deletions whose outcome nobody knows: what they sent may be kept for nothing
        self.texts: dict[str, set[str]] = {}  # what may be in each: one text, unless an outcome is unknown

    async def act(self) -> None:
        await self.make_agents(2, types=("letta_v1_agent",))
        maker = self.client("maker-of-folders")
        for number in range(2):
            body = {"name": f"shelf-{number}", "embedding_chunk_size": 16}
            while not (found := await maker.insist("GET", f"/v1/folders/?name=shelf-{number}")):
                await maker.ask("POST", "/v1/folders/", body)  # one whose answer was lost is there
            self.folders.append(found[0]["id"])
        for agent_id in self.agents:
            await maker.insist("PATCH", f"/v1/agents/{agent_id}", {"max_files_open": OPEN_MAX})
            await maker.insist("PATCH", f"/v1/agents/{agent_id}", {"folder_ids": self.folders})
        people = (self._upload(client, number) for number, client in enumerate(self.clients(PEOPLE)))
        readers = (self._read(self.client(f"reader-{n}"), agent_id) for n, agent_id in enumerate(self.agents))
        await together((*people, *readers, self._detach(self.client("librarian"))))

    async def _upload(self, client: ScenarioClient, number: int) -> None:
        for turn in range(UPLOADS):
            await client.pause()
            name = f"book-{number}-{turn}.txt"
            folder = client.picks(self.folders)
            path = f"/v1/folders/{folder}/upload?duplicate_handling=skip"
            answer = await client.upload(path, name, _text(name).encode())
            self.sent[name], self.texts[name] = fate_of(answer), {_text(name)}
            if self.sent[name] is Fate.done and client.tosses(0.3):  # again, while the first is processed
                answer = await self._upload_again(client, folder, name) or answer
            self.unknown += fate_of(answer) is Fate.unknown
            if answer is not None and answer.status == 200 and client.tosses(0.3):
                await client.pause(3.0)
                self.deleted.add(name)
                gone = await client.ask("DELETE", f"/v1/folders/{folder}/{answer.json()['id']}")
                self.unknown += fate_of(gone) is Fate.unknown

    async def _upload_again(self, client: ScenarioClient, folder: str, name: str) -> Response | None:
        """Another text under the same name: it replaces the first one only where that is asked for."""
        handling, anew = client.picks(("replace", "skip")), _text(name, "cocoa")
        path = f"/v1/folders/{folder}/upload?duplicate_handling={handling}"
        if handling == "replace":
            self.replaced.add(name)
            self.texts[name].add(anew)
        answer = await client.upload(path, name, anew.encode())
        self.unknown += fate_of(answer) is Fate.unknown
        if handling == "replace" and (fate := fate_of(answer)) is not Fate.unknown:
            self.texts[name] = {anew if fate is Fate.done else _text(name)}
        return answer

    async def _read(self, client: ScenarioClient, agent_id: str) -> None:
        """Searches and opens files in turns; what is found is a file that is completed, or was deleted since."""
        for _ in range(SEARCHES):
            await client.pause(3.0)
            heard = await client.say(agent_id, 'call semantic_search_files {"query": "penguins", "limit": 9}')
            for result in heard.results("semantic_search_files"):
                for name in _FOUND.findall(result):
                    await self._was_completed(client, name)
            listed = await client.ask("GET", f"/v1/agents/{agent_id}/files")
            if listed is None or listed.status != 200 or not listed.json()["files"]:
                continue
            name = client.picks([each["file_name"] for each in listed.json()["files"]])
            await together(
                (
                    client.say(agent_id, f'call open_files {{"file_requests": [{{"file_name": "{name}"}}]}}'),
                    client.ask("PATCH", f"/v1/agents/{agent_id}/files/{listed.json()['files'][0]['file_id']}/open"),
                )
            )

    async def _was_completed(self, client: ScenarioClient, name: str) -> None:
        for folder in self.folders:
            answer = await client.ask("GET", f"/v1/folders/{folder}/files")
            if answer is None or answer.status != 200:
                return
            states = {each["file_name"]: each["processing_status"] for each in answer.json()}
            if name not in self.replaced and states.get(name, "completed") != "completed":
                raise Broken(WHOLE, f"{name} was found and is {states[name]}")

    async def settle(self) -> None:
        """The content of a file is what was uploaded; of one that could not be processed there is none."""
        visitor = self.client("visitor")
        for folder in self.folders:
            for one in await visitor.insist("GET", f"/v1/folders/{folder}/files?include_content=true&limit=100"):
                wanted = self.texts[one["original_file_name"]] if one["processing_status"] == "completed" else {""}
                if (one["content"] or "").strip() not in {text.strip() for text in wanted}:
                    raise Broken(WHOLE, f"{one} has none of the contents {wanted!r}")
        await super().settle()

    async def _detach(self, client: ScenarioClient) -> None:
        for verb in ("detach", "attach", "detach", "attach"):
            await client.pause(4.0)
            await client.ask("PATCH", f"/v1/agents/{self.agents[0]}/folders/{verb}/{self.folders[0]}")
        await client.insist("PATCH", f"/v1/agents/{self.agents[0]}/folders/attach/{self.folders[0]}")

    def check(self) -> None:
        super().check()
        disk = self.machine.disk
        index_is_whole(disk)
        whole_files(disk)
        rows = {name: (status, error) for name, status, error in disk.query("SELECT name, status, error FROM files")}
        if unfinished := {name: each for name, each in rows.items() if each[0] not in ("completed", "error")}:
            raise Broken(DONE, f"{unfinished}")
        if silent := [name for name, (status, error) in rows.items() if status == "error" and not error]:
            raise Broken(DONE, f"{silent} failed without a reason")
        for name, fate in self.sent.items():
            if fate is Fate.done and name not in rows and name not in self.deleted:
                raise Broken(DONE, f"the upload of {name} was acknowledged, and it is gone")
        if len(disk.kept_uploads) > self.unknown:  # every file is read or gone; a restart removes what is left over
            raise Broken(DONE, f"{sorted(disk.kept_uploads)} are kept for no file")


def _text(name: str, drink: str = "tea") -> str:
    return "".join(f"line {line} of {name} about penguins and {drink}\n" for line in range(LINES))


FILE_UPLOADS = replace(
    scenario(
        "file-uploads",
        FileUploads,
        faults=(
            Aim(Fault.storage_write_fail, "database.commit", rate=0.01),
            Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.01),
            Aim(Fault.storage_read_fail, "database.read", rate=0.005),
            Aim(Fault.disk_full, "uploads.keep", rate=0.1),
            Aim(Fault.process_crash, "workers.answer", rate=0.1),
            Aim(Fault.process_timeout, "workers.answer", rate=0.03),
            Aim(Fault.crash_before_write, "database.begin", rate=0.005, times_max=2),
            Aim(Fault.crash_during_transaction, "database.statement", rate=0.002, times_max=2),
            Aim(Fault.crash_after_write, "database.acknowledge", rate=0.005, times_max=2),
        ),
        swarm=(Fault.embedding_fail, Fault.embedding_timeout, Fault.storage_busy, Fault.cpu_starvation),
        watches=(_Watch,),
    ),
    boot=boot_in_small_pieces,
)
