"""Tools, MCP servers, sandbox variables and deployments, created, changed and deleted by several clients at once, while
the disk misbehaves and the processes that read their source code end.

An acknowledged thing exists, a refused one does not; a change of two fields is made whole or not at all, a batch too;
and of several clients that change the rules of one agent at once, none loses its change.
"""

import json
from dataclasses import dataclass
from typing import Any

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.workers import PLACE
from kelpie.sim.scenarios.checks.index_checks import index_is_whole
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.records.archive_records import Fate, fate_of
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together

ROUNDS = 2
BATCH = 3
SHARED = "everybodys"
BROKEN = "break"  # parses, and does not compile
READING_S = (0.001, 0.5)  # that a worker process takes for a source
STDIO = {"mcp_server_type": "stdio", "command": "first", "args": []}
TEMPLATE = {"template_id": "t", "base_template_id": "b", "entity_id": "e", "value": "v"}

_ALLOWED = {Fate.done: (1,), Fate.refused: (0,), Fate.unknown: (0, 1)}
_HALVES = {
    "an agent's tool that is not there": "SELECT tool_id FROM agent_tools WHERE tool_id NOT IN (SELECT id FROM tools)",
    "a variable without its sandbox": """
        SELECT key FROM sandbox_variables WHERE sandbox_config_id NOT IN (SELECT id FROM sandbox_configs)""",
    "a server that was renamed and not changed": """
        SELECT server_name FROM mcp_servers WHERE (server_name LIKE '%-after') <> (command = 'second')""",
}


@dataclass(slots=True)
class RequestedThing:
    """A named thing that a client asked for."""

    name: str
    made: Fate
    id: str = ""
    removed: Fate | None = None  # None when no client asked for it

    @property
    def counts(self) -> tuple[int, ...]:
        """The allowed numbers of it."""
        if self.removed in (None, Fate.refused):
            return _ALLOWED[self.made]
        return (0,) if self.removed is Fate.done else (0, 1)


class ToolRecords(ServerScenario):
    """Four clients and one agent, which has all their tools."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.tools: list[RequestedThing] = []
        self.servers: list[RequestedThing] = []
        self.batches: list[RequestedThing] = []
        self.rules: dict[str, Fate] = {}  # tool name -> whether it waits for approval
        machine.world.worker_s = READING_S

    async def act(self) -> None:
        await self.make_agents(1)
        await together(self._work(client, number) for number, client in enumerate(self.clients(4)))

    async def _work(self, client: ScenarioClient, number: int) -> None:
        for turn in range(ROUNDS):
            name = f"thing_{number}_{turn}"
            await client.pause()
            await self._tool(client, name)
            await self._server(client, name)
            await self._variable(client, name)
            await self._deploy(client, name)

    async def _make(
        self, client: ScenarioClient, path: str, name: str, body: Any, kept: list[RequestedThing]
    ) -> RequestedThing:
        response = await client.ask("POST", path, body)
        thing = RequestedThing(name, fate_of(response))
        if response is not None and thing.made is Fate.done:
            answer = response.json()
            thing.id = answer["id"] if isinstance(answer, dict) else name
        kept.append(thing)
        return thing

    async def _tool(self, client: ScenarioClient, name: str) -> None:
        source = f'def {name}(x: int) -> int:\n    """Do.\n\n    Args:\n        x: the x\n    """\n    return x\n'
        await client.ask("POST", "/v1/tools/", {"source_code": f"def broken_{name}() -> None:\n    {BROKEN}\n"})
        tool = await self._make(client, "/v1/tools/", name, {"source_code": source}, self.tools)
        rule = {"requires_approval": True}
        path = f"/v1/agents/{self.agents[0]}/tools"
        self.rules[name] = fate_of(await client.ask("PATCH", f"{path}/approval/{name}", rule))
        if tool.id:
            await self._finds(client, tool, name)
            await client.ask("PATCH", f"{path}/attach/{tool.id}")
            change = {"description": f"squid {name}", "tags": [name]}
            if fate_of(await client.ask("PATCH", f"/v1/tools/{tool.id}", change)) is Fate.done:
                await self._finds(client, tool, "squid", tags=[name])
            if client.tosses(0.5):
                tool.removed = fate_of(await client.ask("DELETE", f"/v1/tools/{tool.id}"))
                await self._finds(client, tool, name)

    async def _finds(self, client: ScenarioClient, tool: RequestedThing, words: str, **body: Any) -> None:
        """An acknowledged tool is found at once by every search, and a deleted one no more."""
        for mode in ("fts", "hybrid"):
            response = await client.ask("POST", "/v1/tools/search", {"query": words, "search_mode": mode, **body})
            if response is None or response.status != 200 or tool.removed is Fate.unknown:
                continue
            found = [each["tool"]["id"] for each in response.json()]
            if (tool.id in found) != (tool.removed is not Fate.done):
                raise Broken("a tool is found as long as it is there", f"{tool} by {words} ({mode}): {found}")

    async def _server(self, client: ScenarioClient, name: str) -> None:
        await client.ask("POST", "/v1/mcp-servers/", {"server_name": SHARED, "config": STDIO})
        body = {"server_name": name, "config": STDIO}
        server = await self._make(client, "/v1/mcp-servers/", name, body, self.servers)
        if server.id:
            change = {"server_name": f"{name}-after", "config": {**STDIO, "command": "second"}}
            await client.ask("PATCH", f"/v1/mcp-servers/{server.id}", change)
            if client.tosses(0.5):
                server.removed = fate_of(await client.ask("DELETE", f"/v1/mcp-servers/{server.id}"))

    async def _variable(self, client: ScenarioClient, name: str) -> None:
        response = await client.ask("POST", "/v1/sandbox-config/local/default")
        if response is None or response.status != 200:
            return
        path = f"/v1/sandbox-config/{response.json()['id']}"
        await client.ask("POST", f"{path}/environment-variable", {"key": name, "value": "v"})
        if client.tosses(0.3):
            await client.ask("DELETE", path)

    async def _deploy(self, client: ScenarioClient, name: str) -> None:
        body = [{"label": f"label{number}", "deployment_id": name, **TEMPLATE} for number in range(BATCH)]
        path = "/v1/_internal_templates"
        batch = await self._make(client, f"{path}/blocks/batch", name, body, self.batches)
        if batch.id and client.tosses(0.5):
            batch.removed = fate_of(await client.ask("DELETE", f"{path}/deployment/{name}"))

    def check(self) -> None:
        super().check()
        for what, statement in _HALVES.items():
            if found := self.machine.disk.query(statement):
                raise Broken("nothing is half there", f"{what}: {found}")
        index_is_whole(self.machine.disk)
        self._matches_answers("SELECT count(*) FROM tools WHERE name = ?", self.tools)
        self._matches_answers(
            "SELECT count(*) FROM mcp_servers WHERE replace(server_name, '-after', '') = ?", self.servers
        )
        for batch in self.batches:
            (count,) = self.machine.disk.query("SELECT count(*) FROM blocks WHERE deployment_id = ?", batch.name)[0]
            halfway = batch.removed in (Fate.refused, Fate.unknown)  # it goes block by block
            if count not in (BATCH * one for one in batch.counts) and not (halfway and count <= BATCH):
                raise Broken("a batch is stored as a whole", f"{count} blocks of {batch}")
        self._rules_match_answers()
        if found := self.machine.disk.query("SELECT name FROM tools WHERE source_code LIKE ?", f"%{BROKEN}%"):
            raise Broken("what does not compile is not stored", str(found))

    def _matches_answers(self, statement: str, things: list[RequestedThing]) -> None:
        for thing in things:
            (count,) = self.machine.disk.query(statement, thing.name)[0]
            if count not in thing.counts:
                raise Broken("a record is as its client was told", f"{count} of {thing}")

    def _rules_match_answers(self) -> None:
        (stored,) = self.machine.disk.query("SELECT tool_rules FROM agents WHERE id = ?", self.agents[0])[0]
        rules = [rule["tool_name"] for rule in json.loads(stored) if rule["type"] == "requires_approval"]
        for name, fate in self.rules.items():
            if rules.count(name) not in _ALLOWED[fate]:
                raise Broken("no change of the rules is lost", f"{name} was {fate}, and the rules are {rules}")


TOOLBOXES = scenario(
    "toolboxes-under-storage-faults",
    ToolRecords,
    faults=(
        Aim(Fault.storage_write_fail, "database.begin", rate=0.05),
        Aim(Fault.storage_write_fail, "database.statement", rate=0.01),
        Aim(Fault.storage_write_fail, "database.commit", rate=0.05),
        Aim(Fault.storage_write_fail, "database.acknowledge", rate=0.05),
        Aim(Fault.storage_busy, "database.begin", rate=0.05),
        Aim(Fault.storage_busy, "database.commit", rate=0.05),
        Aim(Fault.storage_read_fail, "database.read", rate=0.05),
        Aim(Fault.process_timeout, PLACE, rate=0.05),
        Aim(Fault.out_of_memory, PLACE, rate=0.05),
        Aim(Fault.process_crash, PLACE, rate=0.05),
    ),
    swarm=(Fault.disk_full, Fault.crash_after_write, Fault.network_delay, Fault.cpu_starvation),
)
