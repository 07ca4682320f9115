"""A web server on loopback for the tests of web tools: routes write raw bytes, so that they can also misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """A request as it came over the socket."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def parameters(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Route = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class WebServer:
    """`routes` by path; `asked` keeps every request."""

    url: str = ""
    routes: dict[str, Route] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
            }
            method, target, _ = first.split(" ")
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(method, target, headers, body)
            self.asked.append(asked)
            await self.routes.get(asked.path, _missing)(asked, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()


def answer(
    body: bytes | str,
    kind: str = "text/html; charset=utf-8",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Route:
    """A route that always gives the same answer."""
    data = body.encode() if isinstance(body, str) else body

    async def route(asked: Asked, writer: asyncio.StreamWriter) -> None:
        lines = {"content-type": kind, "content-length": str(len(data)), "connection": "close", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data)

    return route


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Route:
    return answer(json.dumps(value), "application/json", status, headers)


def in_turn(*routes: Route) -> Route:
    """A route that acts as each of these once, then as the last."""
    left = list(routes)

    async def route(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    return route


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.Event().wait()


async def _missing(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await answer("no such page", status=404)(asked, writer)


@asynccontextmanager
async def open_web_server() -> AsyncIterator[WebServer]:
    made, tasks = WebServer(), set[asyncio.Task[None]]()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(begin, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()
