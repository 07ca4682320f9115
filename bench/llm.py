"""CPU per model call beside bare httpx, at 20 and 400 messages, for each wire format; prints one JSON object.

The server is another process, so that only the caller is measured. "cold" encodes the whole history anew, as the first
call after a load does; "warm" finds it encoded but for the newest message, as every later call of a turn does. Bare
httpx encodes the body once beforehand, so it is the floor. Run it: python bench/llm.py [calls]
"""

import asyncio
import contextlib
import json
import multiprocessing
import random
import resource
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import httpx

from kelpie.core.conversations.messages import Message, Role, Text
from kelpie.core.ids import AgentId, MessageId
from kelpie.llm.anthropic import messages_request
from kelpie.llm.openai import chat_request, responses_request
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import PreparedMessage, Provider, Request, ToolSchema
from kelpie.llm.routing import provider_kinds
from kelpie.world.clock import SystemClock
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.world import World

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
SIZES = (20, 400)
WORDS_STREAMED = 50

_USAGE = {"input_tokens": 10, "output_tokens": 2}
_CHAT_REPLY = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}
_CLAUDE_REPLY = {"content": [{"type": "text", "text": "Fine."}], "stop_reason": "end_turn", "usage": _USAGE}
_ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Fine."}]}
_RESPONSE = {"status": "completed", "output": [_ITEM], "usage": _USAGE}


def _chat_events() -> list[dict[str, Any]]:
    deltas = [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}] * WORDS_STREAMED
    return [{"choices": [delta]} for delta in [*deltas, {"index": 0, "delta": {}, "finish_reason": "stop"}]]


def _claude_events() -> list[dict[str, Any]]:
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    return [
        {"type": "message_start", "message": {"content": [], "usage": _USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[word] * WORDS_STREAMED,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def _response_events() -> list[dict[str, Any]]:
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**_ITEM, "content": []}},
        *[{"type": "response.output_text.delta", "output_index": 0, "delta": "word "}] * WORDS_STREAMED,
        {"type": "response.completed", "response": _RESPONSE},
    ]


@dataclass(frozen=True)
class Wire:
    kind: str
    model: str
    path: str
    encode: Callable[[Request], bytes]
    reply: dict[str, Any]
    events: Callable[[], list[dict[str, Any]]]

    def plain(self) -> bytes:
        body = json.dumps(self.reply).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def streamed(self) -> bytes:
        pieces = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in self.events()]
        pieces += [b"data: [DONE]\n\n"] if self.path == "chat/completions" else []
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


WIRES = {
    "chat completions": Wire(
        "openai", "gpt-4o-mini", "chat/completions", chat_request.encode_request, _CHAT_REPLY, _chat_events
    ),
    "anthropic messages": Wire(
        "anthropic", "claude-haiku-4-5", "messages", messages_request.encode_request, _CLAUDE_REPLY, _claude_events
    ),
    "openai responses": Wire(
        "openai", "gpt-5-mini", "responses", responses_request.encode_request, _RESPONSE, _response_events
    ),
}


async def _serve(ready: Connection) -> None:
    ready_made = {wire.path.encode(): (wire.plain(), wire.streamed()) for wire in WIRES.values()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
                plain, streamed = ready_made[head.split(b" ")[1].removeprefix(b"/v1/")]
                writer.write(streamed if b'"stream":true' in body[-200:] else plain)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


def _history(count: int) -> list[PreparedMessage]:
    roles = (Role.user, Role.assistant)
    return [
        PreparedMessage(
            Message(MessageId(f"message-{number}"), AGENT, roles[number % 2], 0, (Text("some words " * 20),))
        )
        for number in range(count)
    ]


def _request(model: str, history: list[PreparedMessage], deltas: bool) -> Request:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    tools = [ToolSchema(f"tool_{number}", "What it does. " * 10, schema) for number in range(6)]
    return Request(model, "You are an agent. " * 300, history, tools, deltas=deltas)


async def _cpu_ms(call: Callable[[], Awaitable[None]], times: int) -> float:
    for _ in range(10):
        await call()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(times):
        await call()
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return round(spent * 1000 / times, 3)


async def _measure(url: str, times: int) -> dict[str, Any]:
    nothing = cast(Any, None)
    world = World(SystemClock(), RandomIds(), random.Random(1), nothing, NetworkHttp(), nothing)
    result: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=NetworkHttp().transport(), timeout=None) as client:
        for name, wire in WIRES.items():
            provider = provider_kinds.make(wire.kind, world, Endpoint("p", url, "sk-test", responses=True))
            result[name] = {
                f"{count} messages": await _compare(wire, provider, client, f"{url}/{wire.path}", count, times)
                for count in SIZES
            }
            await provider.close()
    return result


async def _compare(
    wire: Wire, provider: Provider, client: httpx.AsyncClient, url: str, count: int, times: int
) -> dict[str, Any]:
    history = _history(count)
    body = wire.encode(_request(wire.model, history, False))
    stream_body = wire.encode(_request(wire.model, history, True))

    async def ask(deltas: bool, cold: bool) -> None:
        for prepared in history if cold else history[-1:]:
            prepared.wire.clear()
        async for _ in provider.stream(_request(wire.model, history, deltas)):
            pass

    async def bare() -> None:
        (await client.post(url, content=body)).json()

    async def bare_stream() -> None:
        async with client.stream("POST", url, content=stream_body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    json.loads(line[6:])

    return {
        "body_kb": round(len(body) / 1024),
        "kelpie_cold_ms": await _cpu_ms(lambda: ask(False, True), times),
        "kelpie_warm_ms": await _cpu_ms(lambda: ask(False, False), times),
        "bare_httpx_ms": await _cpu_ms(bare, times),
        f"kelpie_warm_stream_{WORDS_STREAMED}_ms": await _cpu_ms(lambda: ask(True, False), times),
        f"bare_httpx_stream_{WORDS_STREAMED}_ms": await _cpu_ms(bare_stream, times),
    }


def main() -> None:
    """Starts the server, measures, prints."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_server, args=(theirs,), daemon=True)
    server.start()
    try:
        measured = asyncio.run(_measure(f"http://127.0.0.1:{ours.recv()}/v1", times))
    finally:
        server.terminate()
    print(json.dumps({"bench": "llm", "unit": "CPU ms per call", "calls": times, "results": measured}, indent=2))


if __name__ == "__main__":
    main()
