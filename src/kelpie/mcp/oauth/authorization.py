"""What authorizes requests to an MCP server without a fixed token: its OAuth token, renewed when it ends.

Tokens are in the database, encrypted; every request reads those of now, and one renewal serves all that wait for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kelpie.core.errors import KelpieError, McpError, McpFault, NotFound, SecretUnreadable, StorageError
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.mcp.connections.dialing import fixed_headers
from kelpie.mcp.oauth.grants import OAuthGrant, grant_from_json
from kelpie.mcp.oauth.login import OAuthClient
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.mcp.transports.port import TransportLimits
from kelpie.observe import logs
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import mcp_oauth
from kelpie.world.database import Tx
from kelpie.world.world import World

SOON_S = 60.0  # before its end a token is renewed
KEEP_AGAIN_S, KEEP_AGAIN_S_MAX = 0.5, 30.0  # after a renewed grant could not be stored; the time doubles
KEEP_TRIES_MAX = 100
NOTED_MAX = 1000  # servers whose last refusal, or whose open login, is kept
CHALLENGE_CHARS_MAX = 4000

T = TypeVar("T")

_log = logs.get("mcp")


@dataclass(frozen=True, slots=True)
class RenewedGrant:
    """A grant that may not be stored yet. `before` are those that it comes from, one of which is stored, or itself;
    their refresh tokens work no more."""

    grant: OAuthGrant
    before: tuple[OAuthGrant, ...]


@dataclass
class OAuthTokens:
    """The OAuth state of all servers."""

    world: World
    limits: TransportLimits
    private: bool = False
    public_url: str = ""
    challenges: dict[str, str] = field(default_factory=dict[str, str])  # the last refusal of a server, newest last
    _renewing: dict[str, asyncio.Task[OAuthGrant | None]] = field(
        default_factory=dict[str, asyncio.Task["OAuthGrant | None"]]
    )
    _unsaved: dict[str, RenewedGrant] = field(default_factory=dict[str, RenewedGrant])
    _keeping: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])
    _logged_in: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    def of(self, server: McpServer) -> "ServerAuthorization":
        return ServerAuthorization(self, server)

    def client(self) -> tuple[OAuthClient, HttpExchange]:
        """A client for OAuth requests, and the connections that its user must close."""
        exchange = HttpExchange(self.world.http, self.limits, public=not self.private)
        return OAuthClient(exchange, private=self.private), exchange

    async def load(self, server_id: str) -> OAuthGrant | None:
        """Raises McpError when it cannot be read."""
        try:
            stored = await self.world.database.read(lambda tx: self._stored(tx, server_id))
        except SecretUnreadable as error:
            raise McpError(McpFault.unauthorized, str(error)) from error
        except StorageError as error:
            raise McpError(McpFault.unreachable, f"its token could not be read: {error}") from error
        newer = self._unsaved.get(server_id)
        return newer.grant if newer is not None and stored in newer.before else stored

    async def save(self, server_id: str, grant: OAuthGrant) -> None:
        """Raises NotFound if the server was deleted, and SecretUnreadable when there is no key to encrypt it with."""
        write = self._write(server_id, grant)
        login = grant.login.state if grant.login else None

        def put(tx: Tx) -> bool:
            found = mcp_oauth.has_server(tx, server_id)
            if found:
                write(tx)
            return found

        if not await self.world.database.transact(put):
            raise NotFound("MCPServer", server_id[:80])
        if login is not None:
            _note(self._logged_in, server_id, asyncio.Event())
        elif grant.access_token is not None and (waiting := self._logged_in.get(server_id)) is not None:
            waiting.set()

    async def logged_in(self, server_id: str) -> None:
        """Waits until a person has finished the login that was begun last."""
        if (waiting := self._logged_in.get(server_id)) is not None:
            await waiting.wait()

    async def renewed(self, server_id: str, spent: str | None) -> OAuthGrant | None:
        """The grant with another token than the spent one; None without a login. Raises McpError.

        A renewal serves all that wait for it, and goes on when none of them does any more: the authorization server
        has replaced the refresh token by then, and only its answer has the new one.
        """
        work = self._renewing.get(server_id)
        if work is None:
            work = self._renewing[server_id] = asyncio.create_task(self._renew(server_id, spent))
            work.add_done_callback(lambda done: self._renewal_ended(server_id, done))
        return await asyncio.shield(work)

    async def close(self) -> None:
        """Stores what could not be stored yet, if that is possible now."""
        for task in (*self._renewing.values(), *self._keeping.values()):
            task.cancel()
        for server_id in list(self._unsaved):
            try:
                await self._keep(server_id)
            except (StorageError, SecretUnreadable) as error:
                _report(server_id, error)

    def _renewal_ended(self, server_id: str, done: "asyncio.Task[OAuthGrant | None]") -> None:
        self._renewing.pop(server_id, None)
        if not done.cancelled():
            done.exception()  # whoever waits gets it; there may be nobody

    async def _renew(self, server_id: str, spent: str | None) -> OAuthGrant | None:
        before = await self.load(server_id)
        if before is None or before.access_token != spent:
            return before  # another request has renewed it
        client, exchange = self.client()
        try:
            grant = await client.refresh(before, self.world.clock.now())
        finally:
            await exchange.close()
        unsaved = self._unsaved.get(server_id)
        earlier = () if unsaved is None or unsaved.grant != before else unsaved.before
        self._unsaved[server_id] = RenewedGrant(grant, (*earlier, before))
        try:
            await self._keep(server_id)
        except (StorageError, SecretUnreadable) as error:
            _report(server_id, error)
            if server_id not in self._keeping:
                task = self._keeping[server_id] = asyncio.create_task(self._keep_later(server_id))
                task.add_done_callback(lambda _: self._keeping.pop(server_id, None))
        return grant

    async def _keep(self, server_id: str) -> None:
        """Stores a renewed grant, unless another login has replaced the one that it comes from."""
        renewed = self._unsaved[server_id]
        write = self._write(server_id, renewed.grant)

        def put(tx: Tx) -> None:
            if self._stored(tx, server_id) in renewed.before:
                write(tx)

        await self.world.database.transact(put)
        if self._unsaved.get(server_id) is renewed:
            del self._unsaved[server_id]

    async def _keep_later(self, server_id: str) -> None:
        pause_s = KEEP_AGAIN_S
        for _ in range(KEEP_TRIES_MAX):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, KEEP_AGAIN_S_MAX)
            if server_id not in self._unsaved:
                return
            try:
                await self._keep(server_id)
            except (StorageError, SecretUnreadable) as error:
                _report(server_id, error)

    def _stored(self, tx: Tx, server_id: str) -> OAuthGrant | None:
        text = mcp_oauth.get(tx, server_id, self.world.keyring)
        return None if text is None else grant_from_json(text)

    def _write(self, server_id: str, grant: OAuthGrant) -> Callable[[Tx], None]:
        sealing = Sealing(self.world.keyring, self.world.ids.secret())
        text, login, now = grant.to_json(), grant.login.state if grant.login else None, self.world.clock.now()
        return lambda tx: mcp_oauth.put(tx, server_id, text, login, now, sealing)


def _note(noted: dict[str, T], server_id: str, value: T) -> None:
    """Keeps a value as the newest, and forgets the oldest if there are too many."""
    noted.pop(server_id, None)
    noted[server_id] = value
    if len(noted) > NOTED_MAX:
        del noted[next(iter(noted))]


def _report(server_id: str, error: KelpieError) -> None:
    _log.error("mcp_token_unsaved", "A renewed token could not be stored", server_id=server_id, error=str(error))


class ServerAuthorization:
    """The headers of one server."""

    def __init__(self, tokens: OAuthTokens, server: McpServer) -> None:
        self._tokens = tokens
        self._server = server
        self._used: str | None = None

    async def headers(self) -> Mapping[str, str]:
        """Raises McpError when a token has ended and cannot be renewed."""
        fixed = fixed_headers(self._server.config)
        grant = await self._tokens.load(self._server.id)
        if grant is None or grant.access_token is None:
            return fixed
        soon = self._tokens.world.clock.now() + int(SOON_S * MICROS_PER_SECOND)
        if grant.expires_at is not None and grant.expires_at <= soon and grant.refresh_token is not None:
            grant = await self._tokens.renewed(self._server.id, grant.access_token) or grant
        self._used = grant.access_token
        return {**fixed, "authorization": f"Bearer {grant.access_token}"}

    async def renew(self, challenge: str) -> bool:
        """After a refusal: whether there is another token to try."""
        _note(self._tokens.challenges, self._server.id, challenge[:CHALLENGE_CHARS_MAX])
        if "insufficient_scope" in challenge:
            return False  # a new token would have the same scope
        grant = await self._tokens.load(self._server.id)
        if grant is None or grant.access_token is None:
            return False
        if grant.access_token != self._used:
            return True
        if grant.refresh_token is None:
            return False
        return await self._tokens.renewed(self._server.id, self._used) is not None

    def secrets(self) -> tuple[str, ...]:
        return () if self._used is None else (self._used,)
