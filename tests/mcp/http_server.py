"""An MCP server over HTTP that misbehaves on request, in the process of the test.

It speaks one generation: `2026-07-28`, or an older version with `initialize` and sessions; at `/sse` the oldest one.
The tools do what their names say; `seen` has every request.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

NO_ARGUMENTS = {"type": "object", "properties": {}}
NAMED = {"requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
NAMES = ("add", "fail", "status500", "json500", "hang", "cut", "silent", "garbage", "big", "elsewhere", "task", "ask")


class HttpServer:
    def __init__(self, version: str = "2025-11-25") -> None:
        self.version = version
        self.url = ""
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.sessions: set[str] = set()
        self.cuts = 1  # streams that `cut` breaks off
        self.pauses = 0  # resumed streams that are ended before the answer, with a new event id
        self.own_stream: asyncio.Queue[dict[str, Any]] | None = None  # of what it sends on its own
        self.stream_asked = asyncio.Event()
        self.stream_opens: asyncio.Event | None = None  # None: it has no such stream
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}  # to its own questions
        self.token: str | None = None  # that requests must show
        self.metadata = ""  # where a refusal says that its metadata is
        self.names = list(NAMES)
        self.kept_ms: int | None = None  # how long its list of tools may be kept
        self.polls_left = 2  # before a task has its result
        self.task_asks = False  # a task needs an answer before it ends
        self.answered: dict[str, Any] = {}  # the answers to a task
        self.cancelled = False
        self._streams: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._kept: dict[str, dict[str, Any]] = {}  # answers that a resumed stream gets

    @property
    def stateless(self) -> bool:
        return self.version == "2026-07-28"

    @property
    def challenge(self) -> str:
        return f'Bearer resource_metadata="{self.metadata}"' if self.metadata else "Bearer"

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [message for _, message, _ in self.seen if message.get("method") == method]

    # --- HTTP ------------------------------------------------------------------------------------------------------

    async def post(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        self.seen.append((request.path, message, {name.lower(): value for name, value in request.headers.items()}))
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return web.json_response({}, status=401, headers={"www-authenticate": self.challenge})
        if "method" not in message or "id" not in message:
            if (asked := self._replies.pop(message.get("id", ""), None)) is not None:
                asked.set_result(message["result"])
            return web.Response(status=202)
        begins = self.stateless or message["method"] == "initialize"
        if not begins and request.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=404)
        return await self.answer(request, message)

    async def answer(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        method, number = message["method"], message["id"]
        if method == "initialize" and not self.stateless:
            session = f"session-{len(self.sessions) + 1}"
            self.sessions.add(session)
            told = {"protocolVersion": self.version, "capabilities": {"tools": {}}, "serverInfo": {"name": "h"}}
            return _result(number, told, {"mcp-session-id": session})
        if method == "server/discover" and self.stateless:
            return _result(number, {"resultType": "complete", "supportedVersions": [self.version], "capabilities": {}})
        if method == "tools/list":
            listed = [{"name": name, "description": name, "inputSchema": NO_ARGUMENTS} for name in self.names]
            kept = {} if self.kept_ms is None else {"ttlMs": self.kept_ms, "cacheScope": "private"}
            return _result(number, {"resultType": "complete", "tools": listed, **kept})
        if method == "tools/call":
            return await self.call(request, message)
        if method.startswith("tasks/"):
            return self.task(number, method, message["params"])
        error = {"code": -32601, "message": f"no method {method}"}
        return web.json_response(
            {"jsonrpc": "2.0", "id": number, "error": error}, status=404 if self.stateless else 200
        )

    async def call(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        name, number = message["params"]["name"], message["id"]
        if name == "status500":
            return web.Response(status=500, text="internal error")
        if name == "json500":
            return web.json_response({"detail": "internal error"}, status=500)
        if name == "hang":
            await asyncio.sleep(3600)
        if name == "garbage":
            return web.Response(text="<html>", content_type="application/json")
        if name == "big":
            return _result(number, _text("x" * 10_000_000))
        if name == "elsewhere":
            return web.Response(status=307, headers={"location": "http://127.0.0.2:1/mcp"})
        if name in ("cut", "silent"):
            return await self.stream(request, number, name)
        if name == "task":
            return _result(number, {"resultType": "task", **_task("working")})
        if name == "ask" and self.stateless and "inputResponses" not in message["params"]:
            ask = {"method": "elicitation/create", "params": {"message": "Your name?", **NAMED}}
            return _result(number, {"resultType": "input_required", "inputRequests": {"who": ask}, "requestState": "s"})
        if name == "ask" and self.stream_opens is not None:
            return _result(number, _text(await self.ask()))
        said = message["params"].get("inputResponses", {}).get("who", {}).get("content", {}).get("name", "")
        return _result(number, _text(f"Hello {said}" if said else name, error=name == "fail"))

    async def ask(self) -> str:
        """Asks on the stream of its own; a question that nobody listens to is lost, and never answered."""
        asked = self._replies["q1"] = asyncio.get_running_loop().create_future()
        if self.own_stream is not None:
            params = {"message": "Your name?", "requestedSchema": NO_ARGUMENTS}
            self.own_stream.put_nowait({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params})
        return (await asked)["action"]

    async def stream(self, request: web.Request, number: int, name: str) -> web.StreamResponse:
        """A stream that breaks off before the answer, or never says anything."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if name == "silent":
            await asyncio.sleep(3600)
        await response.write(b"id: event-1\nretry: 10\ndata:\n\n")
        answer = {"jsonrpc": "2.0", "id": number, "result": _text("whole")}
        if self.cuts > 0:
            self.cuts -= 1
            self._kept["event-1"] = answer
        else:
            await response.write(f"data: {json.dumps(answer)}\n\n".encode())
        return response

    def task(self, number: int, method: str, params: dict[str, Any]) -> web.StreamResponse:
        if method == "tasks/cancel":
            self.cancelled = True
            return _result(number, {"resultType": "complete"})
        if method == "tasks/update":
            self.answered = params["inputResponses"]
            return _result(number, {"resultType": "complete"})
        if self.task_asks and not self.answered:
            asked = {"who": {"method": "elicitation/create", "params": {"message": "Your name?", **NAMED}}}
            return _result(number, {"resultType": "complete", **_task("input_required"), "inputRequests": asked})
        self.polls_left -= 1
        done = self.polls_left <= 0
        found = _task("completed") | {"result": _text("task done")} if done else _task("working")
        return _result(number, {"resultType": "complete", **found})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Resumes a stream that broke off, or follows what the server sends on its own."""
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return web.json_response({}, status=401, headers={"www-authenticate": self.challenge})
        kept = self._kept.pop(request.headers.get("last-event-id", ""), None)
        if kept is None:
            return await self.own(request)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if self.pauses > 0:
            self.pauses -= 1
            self._kept[f"pause-{self.pauses}"] = kept
            await response.write(f"id: pause-{self.pauses}\ndata:\n\n".encode())
            return response
        await response.write(f"id: event-2\ndata: {json.dumps(kept)}\n\n".encode())
        return response

    async def own(self, request: web.Request) -> web.StreamResponse:
        self.stream_asked.set()
        if self.stream_opens is None:
            return web.Response(status=405)
        await self.stream_opens.wait()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        queue = self.own_stream = self._streams["own"] = asyncio.Queue()
        while (message := await queue.get()) is not None:
            await response.write(f"data: {json.dumps(message)}\n\n".encode())
        return response

    async def sse(self, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        name = f"s{len(self._streams) + 1}"
        self._streams[name] = queue
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"event: endpoint\ndata: /messages?session={name}\n\n".encode())
        while (message := await queue.get()) is not None:
            await response.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        return response

    def end_streams(self) -> None:
        for queue in self._streams.values():
            queue.put_nowait(None)  # pyright: ignore[reportArgumentType]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        self.seen.append((request.path, message, dict(request.headers)))
        queue = self._streams[request.query["session"]]
        if message.get("method") == "initialize":
            told = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
            queue.put_nowait({"jsonrpc": "2.0", "id": message["id"], "result": told})
        elif message.get("method") == "tools/list":
            listed = [{"name": name, "inputSchema": NO_ARGUMENTS} for name in self.names]
            queue.put_nowait({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": listed}})
        elif message.get("method") == "tools/call":
            name = message["params"]["name"]
            if name == "cut":
                self.end_streams()
            elif name != "hang":
                queue.put_nowait({"jsonrpc": "2.0", "id": message["id"], "result": _text(name)})
        return web.Response(status=202)

    @contextmanager
    def in_thread(self) -> Iterator["HttpServer"]:
        """Serves from a thread of its own, for tests that do not run in an event loop."""
        started, ended = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            async with self.serving():
                started.set()
                await ended.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        assert started.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["HttpServer"]:
        app = web.Application()
        app.add_routes([web.post("/mcp", self.post), web.get("/mcp", self.get), web.get("/sse", self.sse)])
        app.add_routes([web.delete("/mcp", _ok), web.post("/messages", self.messages)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.end_streams()
            await runner.cleanup()


async def _ok(request: web.Request) -> web.Response:
    return web.Response()


def _result(number: int, result: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": number, "result": result}, headers=headers)


def _text(words: str, *, error: bool = False) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": words}], "isError": error}


def _task(status: str) -> dict[str, Any]:
    told = {"taskId": "t1", "status": status, "createdAt": "", "lastUpdatedAt": "", "ttlMs": None}
    return told | {"pollIntervalMs": 250}
