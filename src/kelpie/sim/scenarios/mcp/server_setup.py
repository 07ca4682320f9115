"""Parts that all scenarios of MCP servers share: registering them, agents that have their tools, and final checks."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.sim.faults import Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie
from kelpie.sim.scenarios.mcp.cell_programs import CellPrograms
from kelpie.sim.scenarios.mcp.http_host import HttpHost
from kelpie.sim.scenarios.mcp.remote_server import RemoteServer
from kelpie.sim.scenarios.server_scenario import ServerScenario

CONNECT_S, READ_S, CALL_S = 6.0, 5.0, 12.0
RETRY_S, IDLE_S = 2.0, 20.0
PROCESSES_MAX = 1
LATE_S = 4.0  # to say goodbye to a server, after the limit of a call
LIMITS = replace(
    SETTINGS,
    mcp_private=True,
    mcp_connect_s=CONNECT_S,
    mcp_read_s=READ_S,
    mcp_call_s=CALL_S,
    mcp_failures_max=3,
    mcp_retry_s=RETRY_S,
    mcp_idle_s=IDLE_S,
    mcp_processes_max=PROCESSES_MAX,
)
STATELESS_REPEATS = 2  # of a request whose answer broke off, for the generation that allows it
TRIES_MAX = 200
_SLOW = (Fault.storage_latency, Fault.cpu_starvation)
_TEXTS = {  # tables with text that clients, models and operators see
    "messages": ("content", "tool_calls", "tool_returns"),
    "run_events": ("events",),
    "runs": ("input", "metadata", "stop_detail"),
    "tool_calls": ("reason",),
    "mcp_tasks": ("status_message",),
    "mcp_tools": ("remote",),
}


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call of a remote tool, as an agent's history has it."""

    tool: str
    mark: str
    ok: bool
    text: str


class McpScenario(ServerScenario):
    """Servers are made in `__init__` of a subclass and registered in `act`."""

    idle_ends = True  # the quiet period is longer than connections are kept

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.servers: dict[str, RemoteServer] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.ids: dict[str, str] = {}  # of registered servers, by name
        self.deleted: set[str] = set()  # ids of servers
        self.programs: CellPrograms | None = None
        self._marks = 0

    # --- servers ---------------------------------------------------------------------------------------------------

    def over_http(self, name: str, version: str, *, kinds: tuple[str, ...] = ("do",), legacy: bool = False) -> HttpHost:
        server = self.servers[name] = RemoteServer(self.machine, name, version, kinds)
        host = HttpHost(self.machine, server, legacy=legacy)
        kind = "sse" if legacy else "streamable_http"
        self.configs[name] = {"mcp_server_type": kind, "server_url": host.url, "auth_token": server.token}
        return host

    def as_programs(self, *named: tuple[str, str], kinds: tuple[str, ...] = ("do",), most: int = PROCESSES_MAX) -> None:
        made = [RemoteServer(self.machine, name, version, kinds) for name, version in named]
        self.programs = CellPrograms(self.machine, made, most)
        for server in made:
            self.servers[server.name] = server
            self.configs[server.name] = self.programs.config(server)

    async def register(self, name: str) -> str:
        """Registers a server, once, and returns its id."""
        client = self.client("operator")
        body = {"server_name": name, "config": self.configs[name]}
        for _ in range(TRIES_MAX):
            told = await client.ask("POST", "/v1/mcp-servers/", body)
            if told is not None and told.status == 200:
                self.ids[name] = told.json()["id"]
                return self.ids[name]
            for server in await client.insist("GET", "/v1/mcp-servers/"):
                if server["server_name"] == name:
                    self.ids[name] = server["id"]
                    return server["id"]
            await client.pause()
        raise Broken("a server can be registered", name)

    async def refresh(self, name: str) -> None:
        """Reads the tools of a server, which must be possible at last."""
        client, path = self.client("operator"), f"/v1/mcp-servers/{self.ids[name]}/refresh"
        for _ in range(TRIES_MAX):
            told = await client.ask("PATCH", path, {})
            if told is not None and told.status == 200:
                return
            if told is not None and told.status not in (408, 502, 503):
                raise Broken("a sound request is accepted", f"{path}: {told.status} {told.body!r}")
            await client.pause(3.0)
        raise Broken("a server that works is used", f"{name} could not be read {TRIES_MAX} times")

    async def tool_ids(self, name: str) -> dict[str, str]:
        """The stored tools of a server: names and ids."""
        listed = await self.client("operator").insist("GET", f"/v1/mcp-servers/{self.ids[name]}/tools")
        return {tool["name"]: tool["id"] for tool in listed}

    def mark(self) -> str:
        self._marks += 1
        return f"m-{self._marks}-end"

    def calling(self, name: str, kind: str = "do") -> str:
        """The script line of a call with a mark of its own."""
        return f"call {name}_{kind} {json.dumps({'mark': self.mark()})}"

    async def run_tool(self, client: ScenarioClient, name: str, tool_id: str) -> tuple[str, Any] | None:
        """Calls a tool for no agent; its mark and the result, or None where that is unknown."""
        mark = self.mark()
        path = f"/v1/mcp-servers/{self.ids[name]}/tools/{tool_id}/run"
        told = await client.ask("POST", path, {"args": {"mark": mark}})
        if told is None or told.status >= 500 or told.status == 404:
            return None
        if told.status != 200:
            raise Broken("a sound call is accepted", f"{path}: {told.status} {told.body!r}")
        return mark, told.json()

    # --- what must be so -------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        self._no_program_is_left()
        await super().settle()
        guest = self.client("guest")
        for name in self.ids:
            await self._works(guest, name)

    async def _works(self, guest: ScenarioClient, name: str) -> None:
        """No breaker blocks for ever: a server that works is used again."""
        await self.refresh(name)
        tools = await self.tool_ids(name)
        offered = self.servers[name].offered[-1]
        if set(tools) != set(offered):
            raise Broken("a refresh stores what is offered", f"{name} has {sorted(tools)}, offers {sorted(offered)}")
        if (tool_id := tools.get(f"{name}_do")) is None:
            return
        told = await self.run_tool(guest, name, tool_id)
        if told is None or told[1]["status"] != "success" or told[1]["func_return"] != f"done {told[0]}":
            raise Broken("a server that works is used", f"{name}: {told}")

    def _no_program_is_left(self) -> None:
        """Programs of servers end when nothing uses them, and with the deletion of their server."""
        left = [] if self.programs is None else list(self.programs.running())
        for connection in self.connections().values():
            if connection.connected and connection.server.server_name in left:
                left.remove(connection.server.server_name)
        if left or (self.idle_ends and any(each.connected for each in self.connections().values())):
            raise Broken("what nobody uses ends", f"programs {left}")

    def check(self) -> None:
        super().check()
        results = list(self.results())
        self.results_are_true(results)
        self._calls_end_in_time()
        self._secrets_stay_inside()
        self._memory_tools_work()
        self._lists_were_offered()

    def results(self) -> Iterable[CallResult]:
        """Every call of a remote tool in a history, with its result."""
        made: dict[str, tuple[str, str]] = {}
        for calls, returned in self.machine.disk.query("SELECT tool_calls, tool_returns FROM messages ORDER BY seq"):
            for call in json.loads(calls or "[]"):
                if call["name"].partition("_")[0] in self.servers:
                    made[call["id"]] = call["name"], json.loads(call["arguments"])["mark"]
            for each in json.loads(returned or "[]"):
                if each["call_id"] in made:
                    yield CallResult(*made[each["call_id"]], each["ok"], each["text"])

    def results_are_true(self, results: Iterable[CallResult]) -> None:
        """A call told as done was carried out, with its own result; one of a session was carried out once at most."""
        for each in results:
            server = self.servers[each.tool.partition("_")[0]]
            if each.ok and each.tool.endswith("_do"):
                if each.text != f"done {each.mark}":
                    raise Broken("a result is that of its call", f"{each}")
                if not server.effects[each.mark]:
                    raise Broken("a call told as done was carried out", f"{each}")
        for server in self.servers.values():
            most = 1 + STATELESS_REPEATS if server.stateless else 1
            seen = Counter((call.mark, call.given) for call in server.calls)
            if doubled := {mark: count for mark, count in seen.items() if count > self.repeats_max(server, most)}:
                raise Broken("a call is made once", f"{server.name} of {server.version} got {doubled}")

    def repeats_max(self, server: RemoteServer, most: int) -> int:
        """How often a server may get one call."""
        return most

    def _calls_end_in_time(self) -> None:
        if any(firing.fault in _SLOW for firing in self.machine.faults.firings):
            return
        for name, took_us in self.machine.disk.query("SELECT name, duration_us FROM tool_calls WHERE kind = 'mcp'"):
            if took_us / 1_000_000 > CALL_S + LATE_S:
                raise Broken("a call ends within its limit", f"{name} took {took_us / 1_000_000:.1f} s")

    def secret_texts(self) -> dict[str, str]:
        """Secrets of servers, and whose they are."""
        return {server.token: server.name for server in self.servers.values()}

    def _secrets_stay_inside(self) -> None:
        secrets = self.secret_texts()
        for table, columns in _TEXTS.items():
            for row in self.machine.disk.query(f"SELECT {', '.join(columns)} FROM {table}"):
                _has_no_secret(secrets, table, row)
        for heard in self.heard:
            _has_no_secret(secrets, "an answer", (json.dumps(heard.messages), heard.trouble))
        for seen in self.machine.llm.seen[-20:]:
            _has_no_secret(secrets, "a prompt", (json.dumps(seen.body),))

    def _memory_tools_work(self) -> None:
        """Tools that come with Kelpie work beside servers that do not."""
        for (returned,) in self.machine.disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'"):
            for each in json.loads(returned or "[]"):
                built_in = each["name"] in ("memory_insert", "core_memory_append")
                if built_in and not each["ok"]:
                    raise Broken("built-in tools keep working", f"{each['name']}: {each['text'][:200]}")

    def _lists_were_offered(self) -> None:
        """The stored tools of a server are one of the lists that it has offered."""
        for name, stored in stored_lists(self.machine, self.ids).items():
            if stored and stored not in self.servers[name].offered:
                raise Broken("a stored list was offered", f"{name} has {stored}")

    def connections(self) -> Mapping[str, Any]:
        running = self.machine.running
        assert isinstance(running, RunningKelpie)
        return running.kelpie.runtime.mcp_pool._connections


def stored_lists(machine: Machine, ids: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The stored tools of servers: names on the server, and descriptions."""
    rows = machine.disk.query("SELECT server_id, remote FROM mcp_tools")
    names = {server_id: name for name, server_id in ids.items()}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for server_id, remote in rows:
        if server_id in names:
            tool = json.loads(remote)
            found[names[server_id]][tool["name"]] = tool["description"]
    return found


def _has_no_secret(secrets: Mapping[str, str], where: str, texts: Iterable[str | bytes | None]) -> None:
    for given in texts:
        text = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
        for secret, name in secrets.items():
            if text and secret in text:
                at = text.index(secret)
                raise Broken("secrets of servers stay inside", f"{name}, in {where}: {text[max(0, at - 200) : at]}")
