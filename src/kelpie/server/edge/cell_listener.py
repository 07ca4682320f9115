"""Kelpie's API for code in a cell, over the listener that the cell handed out: the same application as for all clients,
but only for a request with the passport of that very cell, whatever the server asks of others.

The requests of a cell end with its call: none of them is begun or written once the call has its result.
"""

import asyncio
import copy
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from kelpie.core.access.callers import Caller
from kelpie.core.access.credential_scopes import ALL_ACCESS, Authorization
from kelpie.core.access.credential_scopes import Scope as AccessScope
from kelpie.core.errors import Unauthorized
from kelpie.observe import logs
from kelpie.server.edge.cell_refusals import SEEN
from kelpie.server.edge.http_config import http_config
from kelpie.server.edge.http_protocol import BoundedProtocol
from kelpie.server.http import route_access
from kelpie.world.egress.broker import Listener, socket_of

if TYPE_CHECKING:
    from kelpie.accounts.passports import Passports
    from kelpie.api import Api

CELL = "kelpie.cell"  # in the scope of a request that came out of one: the passport that it must show
CONNECTIONS_MAX = 64  # of one cell at once
SETTLE_S = 30.0  # that a call waits at its end for commits of its code: more than a sound disk ever takes

_log = logs.get("server")


async def admit(passports: "Passports", api: "Callable[[Caller], Api]", scope: Scope, given: str | None) -> None:
    """Puts the authorization and the caller of a request from a cell into its scope. Raises Unauthorized, Forbidden."""
    shown = scope[CELL]
    passport = passports.find(shown)
    if passport is None or given is None or not hmac.compare_digest(given.encode(), shown.encode()):
        raise Unauthorized
    route_access.check_passport(passport, scope["method"], scope["path"])
    user, organization = passport.user_id, passport.organization_id
    reached = {passport.agent_id: ALL_ACCESS}
    scopes = frozenset({AccessScope.read, AccessScope.write})
    scope["pass"] = Authorization(user, organization, scopes, reached, expires_at=passport.expires_at)
    scope["caller"] = caller = Caller(user, organization, sees_secrets=False, passport=passport)
    if (needed := route_access.required_capability(scope["method"], scope["path"])) is not None:
        await api(caller).permissions.require(passport.agent_id, passport.tool or "", needed)


class CellServer:
    """Serves an application on the listeners of cells."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._config: Config | None = None

    async def serve(self, listener: Listener, passport: str) -> "_CellListener":
        """Serves the listener until it is closed."""
        config = copy.copy(self._loaded())
        config.loaded_app = api = CellApi(self._app, passport)
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _CellProtocol(config, state, {}), sock=socket_of(listener))
        return _CellListener(server, state, api)

    def _loaded(self) -> Config:
        if self._config is None:
            self._config = http_config(self._app, limit_concurrency=CONNECTIONS_MAX)
            self._config.load()
        return self._config


class _CellProtocol(BoundedProtocol):
    """A connection from a cell; those beyond the bound would take descriptors of the whole server."""

    connections_max = CONNECTIONS_MAX


class _CellListener:
    def __init__(self, server: asyncio.Server, state: ServerState, api: "CellApi") -> None:
        self._server = server
        self._state = state
        self._api = api

    async def close(self) -> None:
        """Closes the listener and every connection that came through it, and ends their requests."""
        self._server.close()
        for connection in list(self._state.connections):
            if (transport := connection.transport) is not None:
                transport.abort()
        await self._api.end()


class CellApi:
    """The application as one cell sees it, and the requests that the cell has made."""

    def __init__(self, app: ASGIApp, passport: str) -> None:
        self._app = app
        self._passport = passport
        self._under_way: dict[asyncio.Task[Any], bool] = {}  # and whether it is brought to its end
        self._ended = False
        self._refused: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._ended:
            return  # it was under way to us when the call ended
        self._under_way[task] = route_access.only_writes(scope["method"], scope["path"])
        try:
            await self._app({**scope, CELL: self._passport, SEEN: self._refused}, receive, send)
        except asyncio.CancelledError:
            if not self._ended:
                raise
        finally:
            del self._under_way[task]

    async def end(self) -> None:
        """Ends the requests of the cell; a write is waited for, because it cannot be undone.

        An agent that got a message goes on with its turn; a tool that was called is ended.
        """
        self._ended = True
        for task, only_writes in self._under_way.items():
            if not only_writes:
                task.cancel()
        if self._under_way:
            _, late = await asyncio.wait(list(self._under_way), timeout=SETTLE_S)
            if late:
                _log.warning(
                    "cell_requests_late",
                    "Requests of a cell continued after its tool call ended",
                    requests=len(late),
                    waited_s=SETTLE_S,
                )
