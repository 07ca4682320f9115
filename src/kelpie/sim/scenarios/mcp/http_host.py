"""A simulated MCP server at a host of the simulated internet: streamable HTTP, or the older HTTP with one stream.

A crash resets all its connections, forgets its sessions and what runs, and refuses connections until it is up again.
What runs goes on when the connection of who asked is lost, as with most real servers.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from kelpie.sim.faults import Fault
from kelpie.sim.loop.node import outside
from kelpie.sim.network.outgoing_http import OutgoingRequest, OutgoingResponse
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.mcp.remote_server import Failed, RemoteServer, ServerBroke

PLACE = "network.mcp"
DOWN_S = 6.0  # at most; short times are more likely
_STREAM = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}

Guard = Callable[[str | None], dict[str, str] | None]  # the headers of a refusal; None lets the request in


class _Stream:
    """Messages for one reader, in order; they stay, so that a reader may come again."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.ended = False
        self.silent = False
        self._changed = asyncio.Event()

    async def put(self, message: dict[str, Any] | str) -> None:
        self.messages.append(message if isinstance(message, str) else json.dumps(message))
        self._changed.set()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    async def more(self, than: int) -> bool:
        """Waits for another message; False when there will be none."""
        while len(self.messages) <= than or self.silent:
            if self.ended and not self.silent:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True


class _Life:
    """One life of the process: what runs in it ends with it."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.sessions: set[str] = set()
        self.streams: dict[str, _Stream] = {}
        self._works: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=outside())
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    def end(self) -> None:
        self.over.set()
        for work in list(self._works):
            work.cancel()


class HttpHost:
    def __init__(self, machine: Machine, server: RemoteServer, *, legacy: bool = False) -> None:
        self.server = server
        self.host = f"{server.name}.sim"
        self.url = f"http://{self.host}/{'sse' if legacy else 'mcp'}"
        self.guard: Guard = self._knows_token
        self.documents: dict[str, Any] = {}  # that anybody may read, by path
        self._machine = machine
        self._internet = machine.world.internet
        self._rng = machine.loop.rng(f"mcp/host/{server.name}")
        self._faults = machine.faults
        self._numbers = 0
        self._life = _Life()
        self._up()

    # --- life ------------------------------------------------------------------------------------------------------

    def _up(self) -> None:
        self._internet.host(self.host, self, PLACE)

    def crash(self) -> None:
        """Ends the process; another one begins after a while."""
        life, self._life = self._life, _Life()
        life.end()
        self._internet.unhost(self.host)
        self._machine.loop.call_later(DOWN_S * self._rng.random() ** 2, self._up, context=outside())

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _knows_token(self, authorization: str | None) -> dict[str, str] | None:
        return None if authorization == f"Bearer {self.server.token}" else {"www-authenticate": "Bearer"}

    # --- requests --------------------------------------------------------------------------------------------------

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        life = self._life
        work = asyncio.ensure_future(self._serve(asked, answer, life))
        over = asyncio.ensure_future(life.over.wait())
        work.add_done_callback(_look)
        try:
            await asyncio.wait((work, over), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not life.over.is_set():
                await work
            else:
                answer.cut()
        finally:
            work.cancel()
            over.cancel()

    async def _serve(self, asked: OutgoingRequest, answer: OutgoingResponse, life: _Life) -> None:
        refusal = self.guard(asked.headers.get("authorization"))
        path, _, query = asked.path.partition("?")
        if path in self.documents:
            await answer.start(200, _JSON)
            await answer.send(json.dumps(self.documents[path]).encode())
        elif path.startswith("/.well-known"):
            await answer.start(404)
        elif refusal is not None:
            await answer.start(401, refusal)
        elif path == "/sse":
            await self._open_legacy(answer, life)
        elif path == "/messages":
            await self._post_legacy(json.loads(asked.body), answer, life, query)
        elif asked.method == "DELETE":
            life.sessions.discard(asked.headers.get("mcp-session-id", ""))
            await answer.start(200)
        elif asked.method == "GET":
            await self._get(asked, answer, life)
        else:
            await self._post(asked, json.loads(asked.body), answer, life)

    async def _run(self, message: dict[str, Any], stream: _Stream, life: _Life) -> None:
        """Answers a request into a stream."""
        try:
            await stream.put(await self.server.answer(message, stream.put))
        except ServerBroke:
            if self._life is life:
                self.crash()
            return
        except Failed as failure:
            error = {"code": -32603, "message": str(failure)}
            await stream.put("<html>" if failure.garbage else {"jsonrpc": "2.0", "id": message["id"], "error": error})

    # --- streamable HTTP -------------------------------------------------------------------------------------------

    async def _post(
        self, asked: OutgoingRequest, message: dict[str, Any], answer: OutgoingResponse, life: _Life
    ) -> None:
        method, headers = message.get("method"), dict(_JSON)
        if "id" not in message or method is None:
            self.server.hear(message)
            await answer.start(202)
            return
        if not self.server.stateless and method == "server/discover":
            await answer.start(400)
            return
        if method == "initialize":
            headers["mcp-session-id"] = f"session-{self._number()}"
            life.sessions.add(headers["mcp-session-id"])
        elif not self.server.stateless and asked.headers.get("mcp-session-id") not in life.sessions:
            await answer.start(404)
            return
        if method == "subscriptions/listen":
            await answer.start(200, _STREAM)
            await self._tell_changes(answer, first="notifications/subscriptions/acknowledged")
        stream = _Stream()
        life.start(self._finish(message, stream, life))
        if method == "tools/call" and (self._rng.random() < 0.6 or message["params"]["name"].endswith("_ask")):
            key = f"e{self._number()}"
            life.streams[key] = stream
            await answer.start(200, _STREAM)
            if self._faults.fires(Fault.mcp_tool_timeout, "mcp.stream", self.server.name):
                stream.silent = True
            await self._follow(answer, stream, key, -1)
            return
        while await stream.more(len(stream.messages)):
            pass
        await self._whole(answer, stream.messages[-1], headers)

    async def _whole(self, answer: OutgoingResponse, text: str, headers: dict[str, str]) -> None:
        """An answer in one piece; an error of the server has a status of its own."""
        failed = '"code": -32603' in text
        await answer.start(503 if failed else 200, {} if failed else headers)
        await answer.send(text.encode())

    async def _finish(self, message: dict[str, Any], stream: _Stream, life: _Life) -> None:
        await self._run(message, stream, life)
        stream.end()

    async def _follow(self, answer: OutgoingResponse, stream: _Stream, key: str, last: int) -> None:
        """Sends the messages of a stream after the last one that the reader has."""
        if last < 0 and not self.server.stateless:
            await answer.send(f"id: {key}/0\nretry: 500\ndata:\n\n".encode())
        at = max(last, 0)
        while await stream.more(at):
            at += 1
            number = "" if self.server.stateless else f"id: {key}/{at}\n"
            await answer.send(f"{number}data: {stream.messages[at - 1]}\n\n".encode())

    async def _get(self, asked: OutgoingRequest, answer: OutgoingResponse, life: _Life) -> None:
        if self.server.stateless:
            await answer.start(405)
            return
        if asked.headers.get("mcp-session-id") not in life.sessions:
            await answer.start(404)
            return
        key, _, last = asked.headers.get("last-event-id", "").partition("/")
        if last and key not in life.streams:
            await answer.start(404)
            return
        await answer.start(200, _STREAM)
        if last:
            await self._follow(answer, life.streams[key], key, int(last))
        else:
            await self._tell_changes(answer)

    async def _tell_changes(self, answer: OutgoingResponse, first: str | None = None) -> None:
        """Tells every change from now on. What changed before is lost."""
        told = self.server.generation
        if first is not None:
            await answer.send(_notification(first))
        while True:
            if self.server.generation == told:
                await self.server.changed.wait()
            told = self.server.generation
            await answer.send(_notification("notifications/tools/list_changed"))

    # --- the older one ---------------------------------------------------------------------------------------------

    async def _open_legacy(self, answer: OutgoingResponse, life: _Life) -> None:
        number, stream = self._number(), _Stream()
        life.streams[f"session={number}"] = stream
        await answer.start(200, _STREAM)
        await answer.send(f"event: endpoint\ndata: /messages?session={number}\n\n".encode())
        at = 0
        while await stream.more(at):
            at += 1
            await answer.send(f"event: message\ndata: {stream.messages[at - 1]}\n\n".encode())

    async def _post_legacy(self, message: dict[str, Any], answer: OutgoingResponse, life: _Life, session: str) -> None:
        stream = life.streams.get(session)
        if stream is None:
            await answer.start(404)
            return
        await answer.start(202)
        if "id" not in message or "method" not in message:
            self.server.hear(message)
            return
        if message["method"] == "tools/call" and self._faults.fires(
            Fault.mcp_tool_timeout, "mcp.stream", self.server.name
        ):
            stream.silent = True  # for good, with everything that runs on it
        life.start(self._run(message, stream, life))


def _look(work: "asyncio.Task[None]") -> None:
    """Whoever lost the connection is not interested in how the work ended."""
    if not work.cancelled():
        work.exception()


def _notification(method: str) -> bytes:
    return f"data: {json.dumps({'jsonrpc': '2.0', 'method': method})}\n\n".encode()
