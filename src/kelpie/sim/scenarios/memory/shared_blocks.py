"""Blocks that several agents share, edited by their tools and by clients at once: no update is lost, and a prompt never
holds a value older than the last edit acknowledged before its step began.

'log' only grows, by what agents append to it; value and description of 'notice' are replaced by clients and agents.
Everything that clients saw goes through the linearizability check; the prompts are compared with it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kelpie.sim.checks.linearizability import UNKNOWN, Log, Operation, Register, check
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS
from kelpie.sim.scenarios.fixtures.prompts import prompts
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

IDLE_S = 0.5  # so that agents are loaded while others edit
FIRST = "nothing yet"
WATCH_S = 0.02
EDITS_OF_LATE = 10


@dataclass(frozen=True, slots=True)
class ShownBlocks:
    """The blocks in one prompt, and the earliest moment at which its step can have begun."""

    agent: str
    began_s: float
    seen_s: float
    log: tuple[str, ...] | None  # None where the agent does not carry the block
    description: str | None
    notice: str | None


class SharedBlocks(ServerScenario):
    """Two agents write both blocks; one only reads 'log' after their edits, one 'notice' after those of clients.

    Each block is attached to as few agents as possible, because every edit makes its agents reload everything.
    """

    over = False

    async def act(self) -> None:
        maker = self.client("maker")
        self.blocks = {label: await self._make_block(maker, label) for label in ("log", "notice")}
        tools = ("core_memory_append", "memory_rethink")
        await self.make_agents(2, tools=tools, block_ids=self.blocks.values())
        await self.make_agents(1, block_ids=[self.blocks["log"]])
        await self.make_agents(1, block_ids=[self.blocks["notice"]])
        clients = self.clients(4)
        await together(clients[0].say(agent_id) for agent_id in self.agents[2:])  # those who look are awake from now on
        talking = (self._talk(client, number) for number, client in enumerate(clients[:2]))
        watching = asyncio.ensure_future(self._edit_at_late_answers(self.client("watcher")))
        try:
            await together((*talking, self._edit(clients[2]), self._edit_rarely(clients[3])))
        finally:
            self.over = True
            await watching

    async def _make_block(self, maker: ScenarioClient, label: str) -> str:
        body = {"label": label, "value": FIRST, "description": FIRST}
        return (await maker.insist("POST", "/v1/blocks/", body))["id"]

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        append = 'call core_memory_append {"label": "log", "content": "{token}"}'
        rewrite = 'call memory_rethink {"label": "notice", "new_memory": "by {token}"}'
        for line in (append, f"{append} & {rewrite}"):
            await client.pause()
            await self._say(client, self.agents[number], line)
            await self._say(client, self.agents[2])

    async def _say(self, client: ScenarioClient, agent_id: str, *lines: str) -> None:
        heard = await client.say(agent_id, *lines)
        said, text = heard.said, " ".join(lines)
        if "core_memory_append" in text:
            grown = heard.results("core_memory_append")
            self._record("log", "append", said.token, said.called_s, None if grown else UNKNOWN)
            for value in grown:
                self._record("log", "read", None, said.called_s, tuple(value.split("\n")))
        if "memory_rethink" in text:
            done = heard.results("memory_rethink")
            self._record("notice", "write", f"by {said.token}", said.called_s, None if done else UNKNOWN)

    async def _edit(self, client: ScenarioClient) -> None:
        for number in range(3):
            await client.pause()
            await self._patch(client, "description" if number % 2 else "value", f"{client.name} {number}")
            await self._say(client, self.agents[3])

    async def _edit_rarely(self, client: ScenarioClient) -> None:
        for number in range(2):
            await self._read_block(client)
            await client.pause(4.0)
            await self._patch(client, "description" if number % 2 else "value", f"{client.name} {number}")
        await self._read_block(client)

    async def _edit_at_late_answers(self, client: ScenarioClient) -> None:
        """Edits 'notice' between the commit of an agent and its answer, when the agent takes in what it knew then."""
        seen = number = 0
        while not self.over and number < EDITS_OF_LATE:
            await asyncio.sleep(WATCH_S)
            late = self.machine.faults.fired(Fault.storage_latency, "write.journal")
            if late > seen:
                await self._patch(client, "value" if number % 2 else "description", f"{client.name} {number}")
                number += 1
            seen = late

    async def _patch(self, client: ScenarioClient, field: str, value: str) -> None:
        """Repeats the edit until it is acknowledged, as a client would; the first try may have worked already."""
        key = "notice" if field == "value" else field
        called_s = self.machine.loop.time()
        path = f"/v1/blocks/{self.blocks['notice']}"
        for _ in range(100):
            response = await client.ask("PATCH", path, {field: value})
            if response is not None and response.status == 200:
                self._record(key, "write", value, called_s, None)
                return
            self._record(key, "write", value, called_s, UNKNOWN)
            await client.pause()
            called_s = self.machine.loop.time()
        raise Broken("the server recovers", f"an edit of the {field} was never acknowledged")

    async def _read_block(self, client: ScenarioClient) -> None:
        for label in self.blocks:
            called_s = self.machine.loop.time()
            response = await client.ask("GET", f"/v1/blocks/{self.blocks[label]}")
            if response is None or response.status != 200:
                continue
            block = response.json()
            if label == "log":
                self._record("log", "read", None, called_s, tuple(block["value"].split("\n")))
            else:
                self._record("notice", "read", None, called_s, block["value"])
                self._record("description", "read", None, called_s, block["description"])

    def _record(self, key: str, kind: str, value: object, called_s: float, result: object) -> None:
        self.machine.history.operation(key, kind, value, called_s, result)

    def check(self) -> None:
        super().check()
        operations = self.machine.history.operations
        values = dict(self.machine.disk.query("SELECT label, value FROM blocks WHERE label IN ('log', 'notice')"))
        began = Operation("log", "append", FIRST, None, -1.0, 0.0)
        check((began, *(each for each in operations if each.key == "log")), Log())
        for key in ("notice", "description"):
            wrote = Operation(key, "write", FIRST, None, -1.0, 0.0)
            check((wrote, *(each for each in operations if each.key == key)), Register())
        for shown in self._prompts():
            self._is_fresh(shown, tuple(values["log"].split("\n")), operations)

    def _is_fresh(self, shown: ShownBlocks, log: tuple[str, ...], operations: list[Operation]) -> None:
        if shown.log is not None and shown.log != log[: len(shown.log)]:
            raise Broken("a prompt holds what was written", f"{shown} is no beginning of {log}")
        for each in operations:
            acknowledged = each.returned_s is not None and each.returned_s <= shown.began_s
            if each.kind == "append" and acknowledged and shown.log is not None and each.value not in shown.log:
                raise Broken("a prompt is not older than the last edit", f"{each.value} is missing from {shown}")
        for key, value in (("notice", shown.notice), ("description", shown.description)):
            if value is not None:
                writes = [each for each in operations if each.key == key and each.kind == "write"]
                self._is_newest(shown, key, value, writes)

    def _is_newest(self, shown: ShownBlocks, key: str, value: str, writes: list[Operation]) -> None:
        """No acknowledged write came between this value and the beginning of the step."""
        ours = [each for each in writes if each.value == value]
        if not ours and value != FIRST:
            raise Broken("a prompt holds what was written", f"nobody wrote the {key} of {shown}")
        latest = max((each.returned_s or float("inf") for each in ours), default=0.0)
        for each in writes:
            acknowledged = each.returned_s is not None and each.returned_s <= shown.began_s
            if each.value != value and each.called_s >= latest and acknowledged:
                told = f"'{each.value}' is newer than the {key} of {shown}"
                raise Broken("a prompt is not older than the last edit", told)

    def _prompts(self) -> Iterator[ShownBlocks]:
        for prompt in prompts(self.machine.llm.seen, self.heard, self.machine.disk.loads):
            log = prompt.block("log")
            yield ShownBlocks(
                prompt.agent_id,
                prompt.began_s,
                prompt.seen_s,
                None if log is None else tuple(log.split("\n")),
                prompt.block("notice", "description"),
                prompt.block("notice"),
            )


SHARED = scenario(
    "shared-block-edits",
    SharedBlocks,
    faults=(
        Aim(Fault.storage_write_fail, "journal.step.told", rate=0.2),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.25),
        Aim(Fault.storage_latency, "database.write", rate=0.1),
        Aim(Fault.storage_latency, "database.read", rate=0.1),
        Aim(Fault.storage_latency, "write.journal", rate=0.3),
        Aim(Fault.storage_latency, "read.agent", rate=0.5),
        Aim(Fault.storage_latency, "read.changes", rate=0.2),
    ),
    swarm=(Fault.crash_after_write, Fault.storage_write_fail, Fault.storage_read_fail, Fault.cpu_starvation),
    settings=replace(SETTINGS, idle_s=IDLE_S),
)
