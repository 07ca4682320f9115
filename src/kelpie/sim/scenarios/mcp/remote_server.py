"""A simulated MCP server, whatever it is reached over: the tools it offers, what it has carried out, and how it breaks.

It speaks one version of the protocol. What it knows (tasks, effects) survives its crashes, as in a database of its own;
sessions and calls that run do not.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kelpie.mcp.protocol.versions import V2025_11, V2026_07
from kelpie.sim.faults import Fault
from kelpie.sim.runs.machine import Machine

Say = Callable[[dict[str, Any]], Awaitable[None]]  # sends a message before the answer, on the way of the answer
FOR_EVER_S = 24 * 3600.0
WORK_S = (0.01, 1.0)
TASK_S = (1.0, 40.0)
POLL_MS = 2000
ASK_S = 5.0  # that a question waits for its answer
PAGE = 2  # tools on one page of the list
_MARK = {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]}
_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class ServerBroke(Exception):
    """The process of the server ends here."""


class Failed(Exception):
    """The request is answered with an error of the server, or with what is no message."""

    def __init__(self, text: str, *, garbage: bool = False) -> None:
        super().__init__(text)
        self.garbage = garbage


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that has reached the server; `given` is what a person answered, if the call came with it."""

    tool: str
    mark: str
    at_s: float
    given: str | None = None


@dataclass(slots=True)
class RemoteTask:
    mark: str
    ready_s: float
    cancelled: bool = False
    shown: set[str] = field(default_factory=set[str])  # states in which it was asked about


class RemoteServer:
    """`token` is a secret of its configuration, which a server sometimes repeats in its errors."""

    def __init__(self, machine: Machine, name: str, version: str, kinds: tuple[str, ...] = ("do",)) -> None:
        self.name = name
        self.version = version
        self.token = f"token-of-{name}-0123456789"
        self.kinds = kinds
        self.generation = 0  # of the list of tools
        self.calls: list[SeenCall] = []
        self.effects: Counter[str] = Counter()
        self.tasks: dict[str, RemoteTask] = {}
        self.offered: list[dict[str, str]] = []  # every list there was: names and descriptions
        self.changed = asyncio.Event()
        self._machine = machine
        self._faults = machine.faults
        self._rng = machine.loop.rng(f"mcp/{name}")
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._questions = 0
        self._note_offer()

    @property
    def stateless(self) -> bool:
        return self.version == V2026_07

    # --- tools -----------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """Offers other tools from now on, and tells whoever listens."""
        self.generation += 1
        self._note_offer()
        self.changed.set()
        self.changed = asyncio.Event()

    def listed(self) -> list[dict[str, Any]]:
        """The tools of now. Every generation describes each tool anew, and has one of its own."""
        names = [f"{self.name}_{kind}" for kind in self.kinds]
        if self.generation:
            names.append(f"{self.name}_extra{self.generation % 3}")
        made = [{"name": each, "description": f"list {self.generation}", "inputSchema": _MARK} for each in names]
        for tool in made:
            if tool["name"].endswith("_task"):
                tool["execution"] = {"taskSupport": "required"}
        return made

    def _note_offer(self) -> None:
        self.offered.append({tool["name"]: tool["description"] for tool in self.listed()})

    def _page(self, cursor: str | None) -> dict[str, Any]:
        generation, _, start = (cursor or f"{self.generation}/0").partition("/")
        if int(generation) != self.generation:
            raise Failed("the cursor is of an older list")
        tools, first = self.listed(), int(start)
        page: dict[str, Any] = {"tools": tools[first : first + PAGE]}
        return page | ({"nextCursor": f"{generation}/{first + PAGE}"} if first + PAGE < len(tools) else {})

    # --- requests --------------------------------------------------------------------------------------------------

    async def answer(self, message: Mapping[str, Any], say: Say) -> dict[str, Any]:
        """The answer to a request. Raises ServerBroke and Failed."""
        method, params = message["method"], message.get("params") or {}
        if method in ("initialize", "server/discover"):
            result = await self._connect(method)
        elif method == "tools/list":
            result = self._page(params.get("cursor"))
        elif method == "tools/call":
            result = await self._call(params, say)
        elif method.startswith("tasks/"):
            result = self._task(method, params["taskId"])
        else:
            result = None
        if result is None:
            error = {"code": -32601, "message": f"there is no method {method}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        kind = {"resultType": "complete"} if self.stateless else {}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {**kind, **result}}

    async def _connect(self, method: str) -> dict[str, Any] | None:
        if self._faults.fires(Fault.mcp_server_slow_start, "mcp.connect", self.name):
            await asyncio.sleep(self._faults.size(Fault.mcp_server_slow_start))
        if self._faults.fires(Fault.mcp_server_crash, "mcp.connect", self.name):
            raise ServerBroke
        offers = {"tools": {"listChanged": True}}
        if method == "initialize":
            return {"protocolVersion": self.version, "capabilities": offers, "serverInfo": {"name": self.name}}
        return {"supportedVersions": [V2026_07], "capabilities": offers} if self.stateless else None

    async def _call(self, params: Mapping[str, Any], say: Say) -> dict[str, Any]:
        name, mark, faults = params["name"], params["arguments"]["mark"], self._faults
        given = (params.get("inputResponses") or {}).get("who", {}).get("content", {}).get("name")
        self.calls.append(SeenCall(name, mark, asyncio.get_running_loop().time(), given))
        if faults.fires(Fault.mcp_server_crash, "mcp.call", mark):
            raise ServerBroke
        if faults.fires(Fault.mcp_tool_fail, "mcp.status", mark):
            raise Failed(f"database down, token {self.token}")
        if faults.fires(Fault.mcp_tool_fail, "mcp.garbage", mark):
            raise Failed("<html>", garbage=True)
        if token := (params.get("_meta") or {}).get("progressToken"):
            told = {"progressToken": token, "progress": 1, "total": 2, "message": "on it"}
            await say({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        await asyncio.sleep(self._rng.uniform(*WORK_S))
        late = faults.fires(Fault.mcp_tool_timeout, "mcp.call", mark)
        if late and faults.choose(Fault.mcp_tool_timeout, (True, False)):
            await asyncio.sleep(FOR_EVER_S)
        if faults.fires(Fault.mcp_tool_fail, "mcp.call", mark):
            return _text("it did not work", error=True)
        return await self._carry_out(name.rpartition("_")[2], mark, given, say, late)

    async def _carry_out(self, kind: str, mark: str, given: str | None, say: Say, late: bool) -> dict[str, Any]:
        if kind == "task":
            return self._begin_task(mark)
        if kind == "ask" and given is None:
            if self.stateless:
                ask = {"method": "elicitation/create", "params": _question(mark)}
                return {"resultType": "input_required", "inputRequests": {"who": ask}, "requestState": f"state-{mark}"}
            given = await self._ask(mark, say)
            if given is None:
                return _text("nobody answered", error=True)
        self.effects[mark] += 1
        if late:
            await asyncio.sleep(FOR_EVER_S)
        if self._faults.fires(Fault.mcp_server_crash, "mcp.answer", mark):
            raise ServerBroke
        return _text(f"done {mark}" if given is None else f"done {mark} for {given}")

    # --- questions -------------------------------------------------------------------------------------------------

    async def _ask(self, mark: str, say: Say) -> str | None:
        """The name that a person gives; None if nobody does."""
        self._questions += 1
        key = f"ask-{self._questions}"
        waiting = self._asked[key] = asyncio.get_running_loop().create_future()
        await say({"jsonrpc": "2.0", "id": key, "method": "elicitation/create", "params": _question(mark)})
        done, _ = await asyncio.wait((waiting,), timeout=ASK_S)
        told = waiting.result() if done else {}
        return told["content"]["name"] if told.get("action") == "accept" else None

    def hear(self, message: Mapping[str, Any]) -> None:
        """Takes the answer to a question."""
        waiting = self._asked.pop(str(message.get("id")), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.get("result") or {})

    # --- tasks -----------------------------------------------------------------------------------------------------

    def _begin_task(self, mark: str) -> dict[str, Any]:
        task_id = f"{self.name}-task-{len(self.tasks) + 1}"
        now = asyncio.get_running_loop().time()
        self.tasks[task_id] = RemoteTask(mark, now + self._rng.uniform(*TASK_S))
        state = self._state(task_id)
        return {"resultType": "task", **state} if self.stateless else {"task": state}

    def _task(self, method: str, task_id: str) -> dict[str, Any]:
        task = self.tasks[task_id]
        if method == "tasks/cancel":
            task.cancelled = True
            return {}
        if method == "tasks/result":
            return _text(f"task done {task.mark}.")
        return self._state(task_id)

    def _state(self, task_id: str) -> dict[str, Any]:
        task = self.tasks[task_id]
        ready = asyncio.get_running_loop().time() >= task.ready_s
        status = "cancelled" if task.cancelled else "completed" if ready else "working"
        if status == "completed":
            self.effects[task.mark] = 1
        task.shown.add(status)
        told: dict[str, Any] = {"taskId": task_id, "status": status, "createdAt": "", "lastUpdatedAt": ""}
        if self.version == V2025_11:
            return told | {"ttl": None, "pollInterval": POLL_MS}
        done = {"result": _text(f"task done {task.mark}.")} if status == "completed" else {}
        return told | {"ttlMs": None, "pollIntervalMs": POLL_MS, **done}


def _text(text: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": error}


def _question(mark: str) -> dict[str, Any]:
    return {"message": f"Who wants {mark}?", "requestedSchema": _NAME}
