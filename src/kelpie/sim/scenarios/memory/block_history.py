"""One block that agents append to and clients replace and roll back, all at once, under faults and crashes.

Every version is checked when it is committed: the history has no gap, its end is the block, and each version follows
from the one before by exactly what its author did. Every acknowledged change is in it, once.
"""

from dataclasses import dataclass, replace
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.disk import Disk
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.prompts import prompts
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

FIRST = "begun"
KEPT = 8
ROUNDS = 3
_SINCE = (
    "SELECT version, value, author, author_id, run_id, step_id, tool, restores FROM block_history "
    "WHERE block_id = ? AND version > ? ORDER BY version"
)
_KEPT = "SELECT count(*) FROM block_history WHERE block_id = ? AND version > ? AND version < ?"
APPEND = " & ".join(f'call core_memory_append {{"label": "log", "content": "{{token}} {n}"}}' for n in (1, 2))


@dataclass(frozen=True, slots=True)
class Version:
    """One version, as it was committed."""

    number: int
    value: str
    author: str
    author_id: str | None
    run_id: str | None
    step_id: str | None
    tool: str | None
    restores: int | None


class VersionLog:
    """Copies every version when it is committed, since the oldest are dropped; one per run."""

    def __init__(self, block_id: str) -> None:
        self.block_id = block_id
        self.versions: dict[int, Version] = {}

    def __call__(self, disk: Disk) -> None:
        value, version = disk.query("SELECT value, version FROM blocks WHERE id = ?", self.block_id)[0]
        ((kept,),) = disk.query(_KEPT, self.block_id, version - KEPT, version)
        if kept < min(version, KEPT) - 1:
            raise Broken("the newest versions are kept", f"{kept} of those before version {version}")
        last = len(self.versions)
        for row in disk.query(_SINCE, self.block_id, last):
            last += 1
            if row[0] != last:
                raise Broken("a history has no gap", f"version {row[0]} follows {last - 1}")
            self.versions[last] = Version(*row)
        if version != last or self.versions[last].value != value:
            raise Broken("the end of a history is the block", f"{value!r} is version {version}, not {last}")


@dataclass(frozen=True, slots=True)
class AcknowledgedRollback:
    """A rollback that was acknowledged."""

    version: int
    expected: int
    told: int
    value: str


class BlockHistory(ServerScenario):
    """Three agents append, one client replaces the value, two roll versions back."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.appended: list[tuple[str, str, str]] = []  # the line, agent and run of what was acknowledged
        self.written: list[str] = []
        self.restored: list[AcknowledgedRollback] = []
        self.known: list[tuple[float, str | int]] = []  # when a new value or the version of a rollback was acknowledged

    async def act(self) -> None:
        maker = self.client("maker")
        body = {"label": "log", "value": FIRST}
        self.path = f"/v1/blocks/{(await maker.insist('POST', '/v1/blocks/', body))['id']}"
        self.chronicle = VersionLog(self.path.removeprefix("/v1/blocks/"))
        self.chronicle(self.machine.disk)
        self.machine.disk.watch(self.chronicle)
        await self.make_agents(3, tools=("core_memory_append",), block_ids=(self.chronicle.block_id,))
        talkers, (writer, *undoers) = self.clients(6)[:3], self.clients(6)[3:]
        await together(
            (
                *(self._talk(client, agent) for client, agent in zip(talkers, self.agents, strict=True)),
                self._write(writer),
                *(self._undo(client) for client in undoers),
            )
        )
        await self._undo_once(writer)
        await together(client.say(agent) for client, agent in zip(talkers, self.agents, strict=True))

    async def _talk(self, client: ScenarioClient, agent_id: str) -> None:
        for number in range(ROUNDS):
            await client.pause()
            heard = await client.say(agent_id, APPEND, stream=bool(number % 2))
            for value in heard.results("core_memory_append"):
                run_id = next(message["run_id"] for message in heard.messages if message.get("run_id"))
                self.appended.append((value.rpartition("\n")[2], agent_id, run_id))

    async def _write(self, client: ScenarioClient) -> None:
        for number in range(ROUNDS):
            await client.pause(2.0)
            value = f"anew {number}"
            await client.insist("PATCH", self.path, {"value": value})
            self.written.append(value)
            self.known.append((self.machine.loop.time(), value))

    async def _undo(self, client: ScenarioClient) -> None:
        for _ in range(ROUNDS):
            await client.pause(2.0)
            await self._undo_once(client)

    async def _undo_once(self, client: ScenarioClient) -> None:
        listed = await client.insist("GET", f"{self.path}/history?limit={KEPT}")
        newest, version = listed[0]["version"], client.picks(listed)["version"]
        body = {"version": version, "expected_version": newest}
        response = await client.ask("POST", f"{self.path}/rollback", body)
        if response is not None and response.status == 200:
            told: dict[str, Any] = response.json()
            self.restored.append(AcknowledgedRollback(version, newest, told["version"], told["value"]))
            self.known.append((self.machine.loop.time(), told["version"]))
        elif response is not None and response.status not in (404, 409, 503):
            raise Broken("a sound request is accepted", f"rollback: {response.status} {response.body!r}")

    def check(self) -> None:
        super().check()
        versions = self.chronicle.versions
        for number, version in versions.items():
            if number > 1:
                self._follows(versions[number - 1], version)
        self._holds_what_was_acknowledged(versions)
        self._prompts_are_current(versions)
        kept = self.machine.disk.query("SELECT count(*) FROM block_history WHERE block_id = ?", self.chronicle.block_id)
        if kept[0][0] < min(len(versions), KEPT):
            raise Broken("the newest versions are kept", f"{kept[0][0]} of {len(versions)}")

    def _prompts_are_current(self, versions: dict[int, Version]) -> None:
        """A prompt shows a version that is not older than the last one acknowledged before its step began."""
        first = {version.value: number for number, version in reversed(versions.items())}
        known = [(at_s, first[each] if isinstance(each, str) else each) for at_s, each in self.known]
        for prompt in prompts(self.machine.llm.seen, self.heard):
            shown = prompt.block("log")
            oldest = max((number for at_s, number in known if at_s <= prompt.began_s), default=1)
            could = [version.value for number, version in versions.items() if number >= oldest]
            if shown is not None and shown not in could:
                told = f"{prompt.agent_id} is shown {shown!r} after version {oldest} was acknowledged"
                raise Broken("a prompt is not older than the last edit", told)

    def _follows(self, before: Version, after: Version) -> None:
        """Each version is the one before with what its author did to it."""
        if after.restores is not None:
            sound = after.value == self.chronicle.versions[after.restores].value and after.author == "user"
        elif after.tool == "core_memory_append":
            run = self.machine.disk.query("SELECT agent_id FROM runs WHERE id = ?", after.run_id)
            sound = after.value.startswith(f"{before.value}\n") and run == [(after.author_id,)] and bool(after.step_id)
        else:
            sound = after.value.startswith("anew ") and after.author == "user" and after.run_id is None
        if not sound:
            raise Broken("a version follows from the one before", f"{after} after {before}")

    def _holds_what_was_acknowledged(self, versions: dict[int, Version]) -> None:
        added = [
            (version.value.rpartition("\n")[2], version.author_id, version.run_id)
            for version in versions.values()
            if version.tool == "core_memory_append"
        ]
        if len({line for line, _, _ in added}) != len(added):
            raise Broken("an edit is made once", f"{added}")
        for each in self.appended:
            if each not in added:
                raise Broken("an acknowledged edit is in the history", f"{each} is not among {added}")
        for value in self.written:
            if all(version.value != value for version in versions.values()):
                raise Broken("an acknowledged edit is in the history", f"nobody wrote '{value}'")
        for each in self.restored:
            if each.value != versions[each.version].value or each.value != versions[each.told].value:
                raise Broken("a rollback brings the value back", f"{each}: {versions[each.version]}")
            if each.told != each.expected and (each.told, versions[each.told].restores) != (
                each.expected + 1,
                each.version,
            ):
                raise Broken("a rollback is made on the version that was expected", f"{each}: {versions[each.told]}")


BLOCK_HISTORY = scenario(
    "block-history",
    BlockHistory,
    faults=(
        Aim(Fault.storage_write_fail, "journal.step.told", rate=0.1),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.002),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.crash_during_transaction, "database.statement", rate=0.001),
        Aim(Fault.crash_after_write, "journal.step", rate=0.05),
    ),
    swarm=(Fault.crash_before_write, Fault.storage_read_fail, Fault.storage_busy, Fault.cpu_starvation),
    settings=replace(SETTINGS, block_versions=KEPT),
)
