"""Connecting to an MCP server step by step, with a login if it wants one; the steps are Letta's events.

A person who must agree first is told the address; the steps go on when that has happened.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import InvalidInput, McpError, McpFault
from kelpie.core.tools.mcp_servers import McpServer, McpServerType
from kelpie.mcp.client.answers import RemoteTool
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.oauth.authorization import OAuthTokens
from kelpie.mcp.oauth.grants import client_by_hand
from kelpie.mcp.oauth.login import LOGIN_S, client_document
from kelpie.mcp.transports.http_exchange import HttpExchange
from kelpie.storage.tools import mcp_oauth
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class Step:
    """One event; `tools` are those of a success."""

    event: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    tools: tuple[RemoteTool, ...] = ()


class McpLogins:
    def __init__(
        self, world: World, pool: ConnectionPool, tokens: OAuthTokens, caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._world = world
        self._pool = pool
        self._tokens = tokens
        self._organization = caller.organization_id

    async def connect(self, server: McpServer, base_url: str) -> AsyncGenerator[Step]:
        """Connects; `base_url` is where a person is sent back to after a login."""
        yield Step("connection_attempt", {"server_name": server.server_name})
        more = "insufficient_scope" in self._tokens.challenges.get(server.id, "")  # a call was refused for it
        tools = await self._try(server)
        if more or (isinstance(tools, McpError) and self._may_log_in(server, tools)):
            async for step in self._log_in(server, base_url):
                yield step
                if step.event == "error":
                    return
            tools = await self._try(server)
        if isinstance(tools, McpError):
            yield Step("error", {"message": tools.message})
        else:
            yield Step("success", tools=tuple(tools))

    async def set_client(self, server: McpServer, client_id: str, client_secret: str | None) -> None:
        """Stores a client that a person registered at the authorization server of an MCP server; the next login is its.
        Tokens of an earlier login are removed. Raises InvalidInput, NotFound."""
        if server.config.server_type is McpServerType.stdio:
            raise InvalidInput("mcp_server_id", "a stdio server has no login; give it what it needs in `env`")
        if server.config.token is not None:
            raise InvalidInput("mcp_server_id", "the server has a fixed token, which is used instead of a login")
        await self._tokens.save(server.id, client_by_hand(client_id, client_secret))
        self._pool.drop(server.id)

    async def finish(self, state: str, code: str | None, issuer: str | None, refused: str | None) -> None:
        """Takes what the authorization server sends the person back with. Raises InvalidInput, McpError."""
        server_id = await self._world.database.read(lambda tx: mcp_oauth.by_login(tx, state))
        grant = None if server_id is None else await self._tokens.load(server_id)
        if server_id is None or grant is None or grant.login is None or grant.login.state != state:
            raise InvalidInput("state", "no login waits for this answer; begin another")
        if refused is not None or not code:
            raise InvalidInput("error", f"the authorization server did not agree: {(refused or 'no code')[:200]}")
        client, exchange = self._tokens.client()
        try:
            finished = await client.finish(grant, code, issuer, self._world.clock.now())
        finally:
            await exchange.close()
        await self._tokens.save(server_id, finished)
        self._pool.drop(server_id)

    def client_document(self, base_url: str) -> dict[str, Any]:
        return client_document(self._tokens.public_url or base_url)

    async def _try(self, server: McpServer) -> list[RemoteTool] | McpError:
        async def work(session: Session) -> list[RemoteTool]:
            return await session.tools()

        try:
            connection = await self._pool.get(server)
            return await connection.use(work, tries=1)
        except McpError as error:
            return error

    def _may_log_in(self, server: McpServer, error: McpError) -> bool:
        over_http = server.config.server_type is not McpServerType.stdio
        return error.kind is McpFault.unauthorized and over_http and server.config.token is None

    async def _log_in(self, server: McpServer, base_url: str) -> AsyncGenerator[Step]:
        client, exchange = self._tokens.client()
        try:
            challenge = self._tokens.challenges.pop(server.id, None)
            if not challenge:
                challenge = await _challenge(exchange, server.config.server_url or "")
            known = await self._tokens.load(server.id)
            fresh = self._world.ids.secret().hex(), self._world.ids.secret().hex() + self._world.ids.secret().hex()
            base = (self._tokens.public_url or base_url).rstrip("/")
            now = self._world.clock.now()
            grant, address = await client.begin(server.config.server_url or "", challenge, base, fresh, now, known)
        except McpError as error:
            yield Step("error", {"message": f"MCP server '{server.server_name}': {error.message}"})
            return
        finally:
            await exchange.close()
        await self._tokens.save(server.id, grant)
        session_id = f"mcp-oauth-{server.id.uuid}"
        yield Step("oauth_required", {"message": "OAuth authentication required"})
        yield Step("authorization_url", {"url": address, "session_id": session_id})
        yield Step("waiting_for_auth", {"session_id": session_id, "message": "Waiting for the person to agree"})
        try:
            async with asyncio.timeout(LOGIN_S):
                await self._tokens.logged_in(server.id)
        except TimeoutError:
            yield Step("error", {"message": f"Nobody agreed within {LOGIN_S / 60:.0f} minutes"})


async def _challenge(exchange: HttpExchange, url: str) -> str:
    """The challenge with which the server refuses a request without a token."""
    async with exchange.open("GET", url, {"accept": "application/json, text/event-stream"}) as response:
        return response.headers.get("www-authenticate", "")
