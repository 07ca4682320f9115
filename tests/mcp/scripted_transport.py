"""Transports without a network, for tests of the moments at which connections begin and end; on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpConfig, McpServer, McpServerType
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.connection import Connection, Dialed
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.protocol.messages import Failure, Notification, Request, RequestId, Result
from kelpie.mcp.protocol.versions import V2025_11, V2026_07, is_stateless
from kelpie.mcp.transports.port import Inbound, nobody
from tests.llm import test_retry
from tests.mcp.connecting import server_of

Answer = Mapping[str, Any] | Exception
TEXT = {"content": [{"type": "text", "text": "done"}]}
TYPED_SECRET = "sk-123456-and-more"  # that the authorization adds


class ScriptedTransport:
    """Answers by method: a result, an error that is raised, or a list of which each is used once and the last stays.
    A method in `held` is answered when its event is set. `seen` has what was asked and told."""

    def __init__(self, version: str = V2025_11, **answers: Answer | list[Answer]) -> None:
        self.version: str | None = None
        self.inbound: Inbound = nobody
        self.alive = True
        self.closing_cancels = False
        self.probes = True
        self.speaks = version
        self.changes = False
        self.answers: dict[str, list[Answer]] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.seen: list[Request | Notification | Result | Failure] = []
        self.listens: Callable[[Callable[[], None]], Awaitable[None]] = listens_for_ever
        self.listening = 0
        self.closed = 0
        self.answer(**answers)

    def answer(self, **answers: Answer | list[Answer]) -> None:
        """The answers of methods, whose names are written with `_` for `/`."""
        for name, given in answers.items():
            self.answers[name.replace("_", "/")] = given if isinstance(given, list) else [given]

    def asked(self, method: str) -> list[Any]:
        """The parameters of all requests and notifications of a method."""
        found = (each for each in self.seen if isinstance(each, Request | Notification))
        return [dict(each.params) for each in found if each.method == method]

    async def start(self) -> None:
        await self._wait("start")

    async def request(self, request: Request, headers: Mapping[str, str], *, patient: bool = False) -> Result | Failure:
        self.seen.append(request)
        await self._wait(request.method)
        given = self._answer(request.method)
        if isinstance(given, Exception):
            raise given
        return Failure(request.id, -32601, "no such method") if given is None else Result(request.id, given)

    async def tell(self, message: Notification | Result | Failure) -> None:
        self.seen.append(message)

    async def listen(self, ready: Callable[[], None]) -> None:
        self.listening += 1
        try:
            await self.listens(ready)
        finally:
            self.listening -= 1

    async def close(self) -> None:
        self.closed += 1
        self.alive = False

    def says(self, message: Request | Notification, during: RequestId | None = None) -> None:
        self.inbound(message, during)

    async def _wait(self, what: str) -> None:
        if what in self.held:
            await self.held[what].wait()

    def _answer(self, method: str) -> Answer | None:
        if (listed := self.answers.get(method)) is not None:
            return listed.pop(0) if len(listed) > 1 else listed[0]
        offers = {"tools": {"listChanged": self.changes}}
        if method == "server/discover" and is_stateless(self.speaks):
            return {"supportedVersions": [V2026_07], "capabilities": offers}
        if method == "initialize":
            return {"protocolVersion": self.speaks, "capabilities": offers, "serverInfo": {"name": "scripted"}}
        return {"tools/list": {"tools": []}, "tools/call": TEXT}.get(method)


async def listens_for_ever(ready: Callable[[], None]) -> None:
    """Opens its stream and says nothing."""
    ready()
    await asyncio.Event().wait()


class Dialing:
    """Gives out transports, one after the other; `released` counts the programs that were let go."""

    def __init__(self, *transports: ScriptedTransport) -> None:
        self.left = list(transports)
        self.released = 0
        self.renewals: list[str] = []
        self.renews = False

    def __call__(self, server: McpServer, limits: ConnectionLimits) -> Dialed:
        return Dialed(self.left.pop(0), self, release=self._release)

    async def headers(self) -> Mapping[str, str]:
        return {}

    async def renew(self, challenge: str) -> bool:
        self.renewals.append(challenge)
        return self.renews

    def secrets(self) -> Sequence[str]:
        return [TYPED_SECRET]

    async def _release(self) -> None:
        self.released += 1


def now_s() -> float:
    return asyncio.get_running_loop().time()


def connection_of(
    dialing: Dialing,
    config: McpConfig | None = None,
    changed: Callable[[], None] = lambda: None,
    limits: ConnectionLimits | None = None,
) -> Connection:
    config = config or McpConfig(McpServerType.streamable_http, server_url="http://x.sim/mcp")
    return Connection(server_of(config), dialing, limits or ConnectionLimits(), now_s, changed)


async def called(session: Session) -> object:
    """Calls a tool."""
    return await session.call("get", {})


def out_of_reach() -> McpError:
    return McpError(McpFault.unreachable, "nobody is there")


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test on virtual time, and ends what it leaves open."""

    async def whole() -> None:
        await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    test_retry.in_virtual_time(whole)
