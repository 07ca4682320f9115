"""The connection to one MCP server: opened when it is first used, opened again when it was lost, closed when idle.

Calls that run at once share it. A failure is told with the name of the server; failures in a row open its breaker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kelpie.core.errors import McpError, McpFault
from kelpie.core.tools.mcp_servers import McpServer, McpServerType
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.breaker import Breaker, BreakerReport
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.transports.port import SessionOver, Transport, Unauthorized
from kelpie.observe import logs
from kelpie.observe.redaction import HIDDEN

T = TypeVar("T")

CALLS_MAX = 100  # of one server at once
TRIES_MAX = 3  # to reach a server that does not accept connections
RETRY_S = 0.25  # before the second try; the third waits twice as long
SECRET_CHARS_MIN = 6  # shorter ones are words that any text may have
LISTEN_S_MAX = 1.0  # that the first call waits for the stream of an older server
LISTEN_AGAIN_S, LISTEN_AGAIN_S_MAX = 5.0, 300.0
# Failures that say nothing about whether the server works.
_ITS_WORD = (McpFault.refused, McpFault.too_large, McpFault.unauthorized)

_log = logs.get("mcp")


class Authorization(Protocol):
    """The headers that authorize requests to a server."""

    async def headers(self) -> Mapping[str, str]:
        """Raises McpError when there is a token that has ended and cannot be renewed."""
        ...

    async def renew(self, challenge: str) -> bool:
        """After a refusal: whether there are other headers to try."""
        ...

    def secrets(self) -> Iterable[str]:
        """Secrets that requests carry, besides those of the configuration."""
        ...


@dataclass(frozen=True, slots=True)
class Dialed:
    """A transport that is not started yet, and what authorizes it."""

    transport: Transport
    authorization: Authorization
    prepare: Callable[[], Awaitable[None]] | None = None  # installs what the program of a server needs
    release: Callable[[], Awaitable[None]] | None = None  # lets go of that, if it was not started


Dial = Callable[[McpServer, ConnectionLimits], Dialed]


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """The state of a connection, for people."""

    connected: bool
    breaker: BreakerReport
    version: str | None = None
    server: Mapping[str, Any] | None = None
    calls: int = 0  # at present


class Connection:
    def __init__(
        self,
        server: McpServer,
        dial: Dial,
        limits: ConnectionLimits,
        now_s: Callable[[], float],
        tools_changed: Callable[[], None],
    ) -> None:
        self.server = server
        self.used_at = now_s()
        self.listing = asyncio.Lock()  # held by who reads the tools of the server and stores them
        self._limits = limits.of(server.config.options)
        self._dial = dial
        self._now_s = now_s
        self._tools_changed = tools_changed
        self._breaker = Breaker(self._limits.failures_max, self._limits.retry_s, now_s)
        self._opening = asyncio.Lock()
        self._under_way: asyncio.Future[Session] | None = None  # the session that is being opened
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._session: Session | None = None
        self._authorization: Authorization | None = None
        self._session_only = False  # it is known to be of the older generation
        self._calls = 0
        self._listening: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._session is not None and self._session.alive

    @property
    def _is_program(self) -> bool:
        return self.server.config.server_type is McpServerType.stdio

    @property
    def in_use(self) -> bool:
        return self._calls > 0

    def report(self) -> ConnectionReport:
        session = self._session if self.connected else None
        return ConnectionReport(
            self.connected,
            self._breaker.report(),
            session.version if session else None,
            session.server if session else None,
            self._calls,
        )

    async def use(
        self,
        work: Callable[[Session], Awaitable[T]],
        within_s: float | None = None,
        tries: int = TRIES_MAX,
        *,
        upkeep: bool = False,
    ) -> T:
        """Runs work on the session; tries more than once to reach the server. Work that nobody asked for, the upkeep,
        does not keep the session open for longer. Raises McpError, which names the server."""
        limit = self._limits.call_s if within_s is None else min(within_s, self._limits.call_s)
        if not self._breaker.admit():
            raise self._left_alone()
        self._calls += 1
        looks = True
        try:
            async with asyncio.timeout(limit), self._room:
                result = await self._with_session(work, tries)
        except TimeoutError:
            raise self._noted(McpError(McpFault.timed_out, f"the call took longer than {limit:g} s")) from None
        except McpError as error:
            looks = error.kind is not McpFault.unauthorized  # a person must log in first
            raise self._noted(error) from error
        except BaseException:  # raised again: given up, which says nothing about the server
            self._breaker.undecided()
            raise
        finally:
            self._calls -= 1
            if looks:
                self._look_at_tools(upkeep=upkeep)
            self._rest(upkeep=upkeep)
        if self._breaker.succeeded():
            _log.info("mcp_server_recovered", "MCP server works again", server=self.server.server_name)
        return result

    async def close(self) -> None:
        """Ends it; what runs on it fails."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        if self._under_way is not None:
            self._under_way.cancel()
        await self._drop()
        await asyncio.gather(*self._closing)

    # --- the session -------------------------------------------------------------------------------------------------

    async def _with_session(self, work: Callable[[Session], Awaitable[T]], tries_max: int) -> T:
        renewed = again = False
        tries = 1
        while True:
            session = None
            try:
                session = await self._opened()
                return await work(session)
            except Unauthorized as error:
                if renewed or self._authorization is None or not await self._authorization.renew(error.challenge):
                    raise
                renewed = True
            except SessionOver:
                if again:
                    raise
                again = True
                await self._drop(session)
            except McpError as error:
                if session is not None and not session.alive:
                    await self._drop(session)
                if error.kind is not McpFault.unreachable or tries >= tries_max or self._is_program:
                    raise
                await asyncio.sleep(RETRY_S * tries)
                tries += 1

    def _look_at_tools(self, *, upkeep: bool) -> None:
        """Has the tools read that are too old, or that nobody has read in this session: they may have changed. Also
        after work that failed, which may have opened the session or have been to read them. The upkeep itself reads
        them again when it fails."""
        session = self._session
        if session is not None and session.alive and session.tools_are_old:
            session.expect_tools()
            if not upkeep:
                self._tools_changed()

    async def _opened(self) -> Session:
        async with self._opening:
            self._check_open()
            if self._session is not None and self._session.alive:
                return self._session
            await self._drop()
            try:
                self._session = await self._open_unless_closed(session_only=self._session_only)
            except McpError as error:
                if error.kind is not McpFault.closed or self._session_only:
                    self._session_only = False  # it may be another server by now: the next one asks first
                    raise
                # It may have died of a question that it does not know.
                self._session = await self._open_unless_closed(session_only=True)
            session = self._session
            self._session_only = not session.stateless
            if self._listening is None:
                await self._begin_to_listen(session)
                self._check_open()
            return session

    async def _begin_to_listen(self, session: Session) -> None:
        """A question that an older server asks during the first call is lost unless somebody listens by then; a server
        that opens no stream is not waited for. A change of tools that came before is lost as well, so they are read
        again."""
        ready = asyncio.Event()

        def hears() -> None:
            ready.set()
            if session.lists_tools and session.changes_tools:
                self._tools_changed()

        self._listening = asyncio.create_task(self._listen(session, hears, ready.set))
        if session.stateless:
            return  # its questions are answers
        try:
            async with asyncio.timeout(LISTEN_S_MAX):
                await ready.wait()
        except TimeoutError:
            _log.debug("mcp_stream_silent", "MCP server has not opened a stream yet", server=self.server.server_name)

    async def _open_unless_closed(self, *, session_only: bool) -> Session:
        """Opens a session. Closing the connection meanwhile ends that: nobody else would end the session."""
        self._check_open()
        opening = self._under_way = asyncio.ensure_future(self._open(session_only=session_only))
        try:
            await asyncio.wait((opening,))
        except asyncio.CancelledError:
            opening.cancel()
            opening.add_done_callback(self._abandon)
            raise
        finally:
            self._under_way = None
        if self._closed:
            self._abandon(opening)
        self._check_open()
        return opening.result()

    def _abandon(self, opening: "asyncio.Future[Session]") -> None:
        """Ends a session that nobody uses, if it was opened."""
        if not opening.cancelled() and opening.exception() is None:
            self._close_soon(opening.result())

    def _close_soon(self, session: Session) -> None:
        closing = asyncio.create_task(session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _check_open(self) -> None:
        if self._closed:
            raise McpError(McpFault.closed, "the connection was closed")

    async def _open(self, *, session_only: bool) -> Session:
        dialed = self._dial(self.server, self._limits)
        self._authorization = dialed.authorization
        session = Session(dialed.transport, self._tools_changed, session_only=session_only)
        try:
            if dialed.prepare is not None:
                await dialed.prepare()
            await session.open(self._limits.connect_s)
        except BaseException:  # raised again; nothing of it may remain
            await session.close()
            if dialed.release is not None:
                await dialed.release()
            raise
        _log.debug(
            "mcp_server_connected", "Connected to MCP server", server=self.server.server_name, version=session.version
        )
        return session

    async def _drop(self, session: Session | None = None) -> None:
        """Closes the session, if it is still this one."""
        if self._session is None or (session is not None and session is not self._session):
            return
        session, self._session = self._session, None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        self._close_soon(session)

    async def _listen(self, session: Session, hears: Callable[[], None], fails: Callable[[], None]) -> None:
        """Follows what the server sends on its own, as long as the session lasts."""
        pause_s = LISTEN_AGAIN_S
        while session.alive:
            try:
                await session.listen(hears)
                if not session.stateless or not session.changes_tools:
                    return
            except McpError as error:
                fails()
                _log.debug(
                    "mcp_notifications_lost",
                    "Notifications of an MCP server stopped",
                    server=self.server.server_name,
                    error=str(error),
                )
                if error.kind is McpFault.refused:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LISTEN_AGAIN_S_MAX)

    def _rest(self, *, upkeep: bool) -> None:
        """Closes the session when nothing has used it for a while."""
        if upkeep and self._idle is not None:
            return
        self.used_at = self._now_s()
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._closed and not self._calls:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self._limits.idle_s, self._tire)

    def _tire(self) -> None:
        self._idle = None
        if not self._calls:
            task = asyncio.ensure_future(self._drop())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _noted(self, error: McpError) -> McpError:
        """The failure with the name of the server, counted by the breaker if it says something about the server."""
        name, message = self.server.server_name, self._without_secrets(error.message)
        if error.kind in _ITS_WORD and (error.code or 0) < 500:
            self._breaker.succeeded()
        elif self._breaker.failed(message):
            report = self._breaker.report()
            _log.warning(
                "mcp_server_left_alone",
                "MCP server keeps failing and is left alone for a while",
                server=name,
                failures=report.failures,
                seconds=round(report.retry_after_s),
                error=message,
            )
        return McpError(error.kind, f"MCP server '{name}': {message}", code=error.code)

    def _without_secrets(self, text: str) -> str:
        """The text of a server's failure; a server may repeat in it what it was given, and a model will read it."""
        given = () if self._authorization is None else self._authorization.secrets()
        for secret in sorted({*self.server.config.secrets, *given}, key=len, reverse=True):
            if len(secret) >= SECRET_CHARS_MIN:
                text = text.replace(secret, HIDDEN)
        return text

    def _left_alone(self) -> McpError:
        report = self._breaker.report()
        return McpError(
            McpFault.left_alone,
            f"MCP server '{self.server.server_name}' failed {report.failures} times in a row and is left alone for "
            f"{report.retry_after_s:.0f} s. The last error: {report.last_error}",
        )
