"""CPU per model call beside bare httpx, at 20 and 400 messages; prints one JSON object.

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
from multiprocessing.connection import Connection
from typing import Any, cast

import httpx

from kelpie.core.ids import AgentId, MessageId
from kelpie.core.messages import Message, Role, Text
from kelpie.llm.faults import Endpoint
from kelpie.llm.openai_body import encode_request
from kelpie.llm.openai_chat import OpenAIChat
from kelpie.llm.port import Prepared, Request, ToolSchema
from kelpie.world.clock import SystemClock
from kelpie.world.http import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.world import World

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
SIZES = (20, 400)
WORDS_STREAMED = 50

_REPLY = json.dumps(
    {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
).encode()
_PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_REPLY), _REPLY)


def _streamed() -> bytes:
    deltas = [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}] * WORDS_STREAMED
    deltas.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    pieces = [b"data: " + json.dumps({"choices": [delta]}).encode() + b"\n\n" for delta in deltas]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b"data: [DONE]\n\n"])
    return head + body + b"0\r\n\r\n"


async def _serve(ready: Connection) -> None:
    streamed = _streamed()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
                writer.write(streamed if b'"stream":true' in body[-200:] else _PLAIN)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


def _history(count: int) -> list[Prepared]:
    roles = (Role.user, Role.assistant)
    return [
        Prepared(Message(MessageId(f"message-{number}"), AGENT, roles[number % 2], 0, (Text("some words " * 20),)))
        for number in range(count)
    ]


def _request(history: list[Prepared], deltas: bool) -> Request:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    tools = [ToolSchema(f"tool_{number}", "What it does. " * 10, schema) for number in range(6)]
    return Request("gpt-4o-mini", "You are an agent. " * 300, history, tools, deltas=deltas)


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
    chat = OpenAIChat(world, Endpoint("openai", url, "sk-test"))
    client = httpx.AsyncClient(transport=NetworkHttp().transport(), timeout=None)
    result: dict[str, Any] = {}
    for count in SIZES:
        history = _history(count)

        async def ask(deltas: bool, cold: bool, history: list[Prepared] = history) -> None:
            for prepared in history if cold else history[-1:]:
                prepared.wire.clear()
            async for _ in chat.stream(_request(history, deltas)):
                pass

        body = encode_request(_request(history, False))
        stream_body = encode_request(_request(history, True))

        async def bare(body: bytes = body) -> None:
            (await client.post(f"{url}/chat/completions", content=body)).json()

        async def bare_stream(body: bytes = stream_body) -> None:
            async with client.stream("POST", f"{url}/chat/completions", content=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        json.loads(line[6:])

        result[f"{count} messages"] = {
            "body_kb": round(len(body) / 1024),
            "kelpie_cold_ms": await _cpu_ms(lambda ask=ask: ask(False, True), times),
            "kelpie_warm_ms": await _cpu_ms(lambda ask=ask: ask(False, False), times),
            "bare_httpx_ms": await _cpu_ms(bare, times),
            f"kelpie_warm_stream_{WORDS_STREAMED}_ms": await _cpu_ms(lambda ask=ask: ask(True, False), times),
            f"bare_httpx_stream_{WORDS_STREAMED}_ms": await _cpu_ms(bare_stream, times),
        }
    await client.aclose()
    await chat.close()
    return result


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
