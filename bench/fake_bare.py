"""The least that a streaming server can do on Kelpie's stack: what the machine allows at all, beside what Kelpie does.

The same ASGI server, event loop and HTTP client; each request asks the model with a body of the size given and sends
its deltas on as events of the shape that Kelpie's have. No agent, no database, no history, no checks. Prints its port.
Only for benchmarks.
"""

import argparse
import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvicorn
import uvloop

from kelpie.server.run import BACKLOG

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class Bare:
    """An ASGI application: one model call a request."""

    def __init__(self, model_url: str, body_bytes: int) -> None:
        self._url = f"{model_url}/chat/completions"
        self._padding = "x" * body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        asked = b""
        while True:
            piece = await receive()
            asked += piece.get("body", b"")
            if not piece.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        messages = [
            {"role": "system", "content": self._padding},
            {"role": "user", "content": orjson.loads(asked)["input"]},
        ]
        body = orjson.dumps({"model": "gpt-4o-mini", "stream": True, "messages": messages})
        async with self._open().post(self._url, data=body, headers={"content-type": "application/json"}) as answer:
            async for event in _events(answer):
                if data := _said(event):
                    await send({"type": "http.response.body", "body": _frame(data), "more_body": True})
        last = _frame({"message_type": "stop_reason", "stop_reason": "end_turn"}) + b"data: [DONE]\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1000, keepalive_timeout=30))
        return self._session


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    left = b""
    async for chunk in answer.content.iter_any():
        *whole, left = (left + chunk).split(b"\n\n")
        for event in whole:
            yield event.removeprefix(b"data: ")


def _said(event: bytes) -> dict[str, Any] | None:
    """An event as clients of Kelpie see it."""
    choices = [] if event == b"[DONE]" else orjson.loads(event)["choices"]
    if not choices or not (text := choices[0]["delta"].get("content")):
        return None
    return {
        "id": "message-00000000-0000-4000-8000-000000000000",
        "date": "2026-01-01T00:00:00+00:00",
        "message_type": "assistant_message",
        "otid": "00000000-0000-4000-8000-000000000000",
        "run_id": "run-00000000-0000-4000-8000-000000000000",
        "step_id": "step-00000000-0000-4000-8000-000000000000",
        "content": text,
    }


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--body-bytes", type=int, default=0)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    app: Any = Bare(options.model_url, options.body_bytes)
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, backlog=BACKLOG
    )
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
