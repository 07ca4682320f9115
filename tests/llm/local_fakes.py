"""Local model servers over real HTTP: each path has its behaviour, and what is not there is a 404."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx

from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.retry import RetryLimits
from kelpie.world.http.port import NetworkHttp
from tests.llm.fakes import EAGER, Behaviour, Heard, _read_request, answer, serving, world

NOTHING_HERE = answer(b"404 page not found", 404, "text/plain")


@dataclass
class LocalFake:
    """Answers by method and path. A list of behaviours is used up one by one, and the last one stays."""

    url: str = ""
    heard: list[Heard] = field(default_factory=list[Heard])
    routes: dict[str, list[Behaviour]] = field(default_factory=dict[str, list[Behaviour]])
    tasks: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    def at(self, route: str, *behaviours: Behaviour | Any) -> "LocalFake":
        """What `GET /path` answers: behaviours, or plain JSON."""
        self.routes[route] = [each if callable(each) else answer(each) for each in behaviours]
        return self

    def asked(self, route: str) -> list[Heard]:
        return [heard for heard in self.heard if f"{heard.method} {heard.path}" == route]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(cast(asyncio.Task[Any], asyncio.current_task()))
        try:
            while not writer.is_closing():
                heard = await _read_request(reader)
                self.heard.append(heard)
                await self._behaviour(heard)(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()

    def _behaviour(self, heard: Heard) -> Behaviour:
        name = json.loads(heard.raw).get("model") if heard.raw else None
        exact = f"{heard.method} {heard.path}"
        left = self.routes.get(f"{exact} {name}") or self.routes.get(exact) or [NOTHING_HERE]
        return left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def local_fake() -> AsyncIterator[LocalFake]:
    made = LocalFake()
    async with serving(made) as made.url:
        yield made


@asynccontextmanager
async def local_server(
    url: str, expected: str = "ollama", limits: RetryLimits = EAGER, **options: Any
) -> AsyncIterator[LocalServer]:
    variable = f"{expected.upper()}_BASE_URL"
    server = LocalServer(world(), Endpoint(expected, url, None, variable, variable), expected, limits, **options)
    try:
        yield server
    finally:
        await server.close()


class MovedPorts(NetworkHttp):
    """The network with other programs on some ports of this machine; on all others nobody listens."""

    def __init__(self, servers: Mapping[int, str]) -> None:
        super().__init__()
        self._servers = servers
        self.asked: list[int] = []  # ports, in order

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        return _MovedTransport(super().transport(public=public), self._servers)

    async def listens(self, host: str, port: int) -> bool:
        self.asked.append(port)
        return port in self._servers


class _MovedTransport(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport, servers: Mapping[int, str]) -> None:
        self._inner = inner
        self._servers = servers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpx.URL(self._servers.get(request.url.port or 0, str(request.url)))
        request.url = request.url.copy_with(host=url.host, port=url.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def embedding(fake: LocalFake, vectors: Mapping[str, Sequence[float]]) -> None:
    """Lets it embed: a text gets the vector of the first word below that it contains, any other text the last one."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        asked = fake.asked("POST /v1/embeddings")[-1].body
        data = [
            {
                "index": index,
                "embedding": next((each for word, each in vectors.items() if word in text), [*vectors.values()][-1]),
            }
            for index, text in enumerate(asked["input"])
        ]
        await answer({"object": "list", "data": data, "model": asked["model"]})(writer)

    fake.at("POST /v1/embeddings", behave)


def ndjson(*objects: Any, end: str = "clean") -> Behaviour:
    """One JSON object a line; text is sent as it is. `end` is clean, cut or open (nothing more ever comes)."""
    raw = [piece if isinstance(piece, str) else json.dumps(piece) + "\n" for piece in objects]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
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


RUNNING = answer(b"Ollama is running", 200, "text/plain; charset=utf-8")


def shown(architecture: str = "qwen3", window: int = 40960, **fields: Any) -> dict[str, Any]:
    """What Ollama tells of a model."""
    return {
        "parameters": 'stop "<|im_end|>"',
        "template": "{{ .Prompt }}",
        "details": {"family": architecture},
        "model_info": {"general.architecture": architecture, f"{architecture}.context_length": window},
        "capabilities": ["completion", "tools"],
        **fields,
    }


def ollama(fake: LocalFake, **models: dict[str, Any]) -> LocalFake:
    """Makes it an Ollama server with these models; `__` in a name stands for `:`."""
    names = {name.replace("__", ":"): details for name, details in models.items()}
    fake.at("GET /", RUNNING)
    fake.at("GET /api/tags", {"models": [{"name": name, "model": name} for name in names]})
    for name, details in names.items():
        fake.at(f"POST /api/show {name}", details)
    return fake
