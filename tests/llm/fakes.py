"""A provider over real HTTP that behaves, or misbehaves, as a test tells it; and small makers of requests."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import httpx

from kelpie.core.conversations.messages import Message, Part, Role, Text, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import PreparedMessage, Request, ToolSchema
from kelpie.llm.provider.retry import RetryLimits
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import Http, NetworkHttp
from kelpie.world.ids import SeededIds
from kelpie.world.world import World

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
EAGER = RetryLimits(
    attempts=3, total_s=20, first_byte_s=10, idle_s=10, backoff_s=0
)  # bounds no healthy test comes near


class TransportHttp:
    """The HTTP port on a given transport."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        return self._transport

    async def listens(self, host: str, port: int) -> bool:
        return True


def world(http: Http | None = None) -> World:
    rng = random.Random(7)
    return World(SystemClock(), SeededIds(rng), rng, cast(Any, None), http or NetworkHttp(), cast(Any, None))


def message(role: Role, *content: Part | str, number: int = 1, **fields: Any) -> PreparedMessage:
    parts = tuple(Text(part) if isinstance(part, str) else part for part in content)
    given = MessageId(f"message-00000000-0000-4000-8000-{number:012d}")
    return PreparedMessage(Message(given, AGENT, role, 0, parts, **fields))


def said(text: str, number: int = 1) -> PreparedMessage:
    return message(Role.user, text, number=number)


def called(name: str, arguments: str = "{}", call_id: str = "call_1", number: int = 2) -> PreparedMessage:
    return message(Role.assistant, tool_calls=(ToolCall(call_id, name, arguments),), number=number)


def returned(name: str, text: str, call_id: str = "call_1", ok: bool = True, number: int = 3) -> PreparedMessage:
    return message(Role.tool, tool_returns=(ToolReturn(call_id, name, ok, text),), number=number)


def tool(name: str, *required: str, **properties: str) -> ToolSchema:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    return ToolSchema(name, f"About {name}.", {"type": "object", "properties": fields, "required": list(required)})


def asking(text: str = "hi", **fields: Any) -> Request:
    fields.setdefault("messages", [said(text)])
    return Request(**{"model": "gpt-4o-mini", "system": "Be brief.", **fields})


@dataclass
class Heard:
    """A request as the fake got it."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Fake:
    """Answers each request with the next behaviour; the last one stays."""

    url: str = ""
    heard: list[Heard] = field(default_factory=list[Heard])
    behaviours: list[Behaviour] = field(default_factory=list[Behaviour])
    connections: int = 0
    tasks: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    def will(self, *behaviours: Behaviour) -> None:
        self.behaviours = list(behaviours)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(cast(asyncio.Task[Any], asyncio.current_task()))
        try:
            while not writer.is_closing():
                self.heard.append(await _read_request(reader))
                behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                await behaviour(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return Heard(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


class Server(Protocol):
    """What serves connections, each in a task that it keeps."""

    tasks: list[asyncio.Task[Any]]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@asynccontextmanager
async def serving(made: Server) -> AsyncIterator[str]:
    """Lets it serve at an address, which is given."""
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


@asynccontextmanager
async def fake() -> AsyncIterator[Fake]:
    made = Fake()
    async with serving(made) as url:
        made.url = f"{url}/v1"
        yield made


@asynccontextmanager
async def provider(made: Fake, limits: RetryLimits = EAGER, key: str | None = "sk-test") -> AsyncIterator[OpenAIChat]:
    chat = OpenAIChat(world(), Endpoint("openai", made.url, key), limits)
    try:
        yield chat
    finally:
        await chat.close()


def answer(
    body: Any, status: int = 200, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> Behaviour:
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)

    return behave


_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def events(*pieces: Any, end: str = "clean") -> Behaviour:
    """An event stream. A dict is an event's data, text is sent as it is. `end` is clean, cut (in the middle of the
    body) or open (nothing more ever comes)."""
    raw = [
        piece if isinstance(piece, str) else f"data: {json.dumps(piece, ensure_ascii=False)}\n\n" for piece in pieces
    ]

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(_STREAM_HEAD)
        for piece in raw:
            data = piece.encode()
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        if end == "open":
            await asyncio.Event().wait()
        if end == "clean":
            writer.write(b"0\r\n\r\n")
        else:
            writer.close()

    return behave


async def silence(writer: asyncio.StreamWriter) -> None:
    """Never says anything."""
    await asyncio.Event().wait()


DONE = "data: [DONE]\n\n"
USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def completion(reply: dict[str, Any], finish: str = "stop", usage: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", **reply}, "finish_reason": finish}],
        "usage": usage or USAGE,
    }


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": choices,
        **fields,
    }
