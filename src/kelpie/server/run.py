"""Serving over real sockets and a graceful end: a signal stops new requests, and running ones may finish.

The application is started before the first request and stopped after the last one, within one drain period.
"""

import asyncio
import contextlib
import errno
import signal
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import Server

from kelpie.core.access.client_addresses import TrustedProxies
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings
from kelpie.observe import logs
from kelpie.server.app import create_app
from kelpie.server.edge.client_protocol import ClientProtocol
from kelpie.server.edge.connection_limits import connection_limits
from kelpie.server.edge.forwarded_client import ForwardedClient
from kelpie.server.edge.http_config import http_config
from kelpie.world.open_files import open_files_limit

if TYPE_CHECKING:
    from kelpie.app import Kelpie

BACKLOG = 2048
BACKLOG_SHARE = 8  # the whole backlog may be accepted at once, before a limit is looked at: a part of all open files
STOP_S_MIN = 1.0  # for closing the database, however long the requests took

T = TypeVar("T")

_log = logs.get("server")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end on the server's event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def serve(kelpie: "Kelpie", settings: Settings, ready: Callable[[str, int], None]) -> None:
    """Serves until SIGINT or SIGTERM; `ready` is called with the host and port once requests are accepted.

    Raises ConfigurationError when the address cannot be served on.
    """
    server = _Server(_config(kelpie, settings))
    loop = asyncio.get_running_loop()
    stopping_at: list[float] = []

    def stop() -> None:
        stopping_at.append(loop.time())
        kelpie.stopping = True
        server.force_exit = server.should_exit  # the second signal does not wait
        server.should_exit = True

    await kelpie.start()
    try:
        with _signals(stop):
            await server.serve_until_stopped(ready)
    finally:
        used_s = loop.time() - stopping_at[0] if stopping_at else 0.0
        await kelpie.stop(max(STOP_S_MIN, settings.drain_s - used_s))


def _config(kelpie: "Kelpie", settings: Settings) -> Config:
    open_files = open_files_limit()
    limits = connection_limits(settings, open_files)
    app: ASGIApp = create_app(kelpie)
    if settings.trusted_proxies:
        app = ForwardedClient(app, TrustedProxies(settings.trusted_proxies), limits)
    return http_config(
        app,
        partial(ClientProtocol, limits=limits, head_s=settings.head_s),
        host=settings.host,
        port=settings.port,
        backlog=min(BACKLOG, max(1, open_files // BACKLOG_SHARE)),
        timeout_keep_alive=max(1, round(settings.keep_alive_s)),
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )


class _Server(Server):
    """uvicorn without its own handling of signals and of the process exit."""

    _ready: Callable[[str, int], None]

    async def serve_until_stopped(self, ready: Callable[[str, int], None]) -> None:
        """Raises ConfigurationError when the address is taken or not of this machine."""
        self._ready = ready
        await self.serve()

    async def startup(self, sockets: Any = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as leaving:
            raise _bind_error(self.config.host, self.config.port, leaving.__context__) from None
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        _log.info("server_started", "Server started", host=host, port=port)
        self._ready(host, port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `serve` does that: a signal must not end the process when the server has stopped


def _bind_error(host: str, port: int, cause: BaseException | None) -> ConfigurationError:
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        return ConfigurationError(
            "KELPIE_PORT", f"port {port} on {host} is in use; stop what uses it or choose another port"
        )
    return ConfigurationError("KELPIE_HOST", f"cannot listen on {host} port {port}: {cause}")


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
