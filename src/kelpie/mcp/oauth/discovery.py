"""Discovery for OAuth: which authorization server protects an MCP server, and where its endpoints are.

Every address that a server names is checked before it is asked, and reached like the server itself: over public
addresses only, unless the operator allows others.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from kelpie.core.errors import InvalidInput, McpError, McpFault
from kelpie.core.tools.mcp_servers import check_address
from kelpie.mcp.transports.http_exchange import HttpExchange

DOCUMENT_BYTES_MAX = 256 * 1024
_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """An authorization server, and what it is asked to protect."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    resource: str
    registration_endpoint: str | None = None
    scope: str | None = None
    token_auth_methods: tuple[str, ...] = ()
    takes_client_documents: bool = False
    names_issuer: bool = False


class Discovery:
    def __init__(self, exchange: HttpExchange, *, private: bool) -> None:
        self._exchange = exchange
        self._private = private

    async def find(self, server_url: str, challenge: str) -> AuthorizationServer:
        """The authorization server of an MCP server that answered with this challenge. Raises McpError."""
        asked = dict(_PARAMETER.findall(challenge))
        resource = await self._resource(server_url, asked.get("resource_metadata"))
        listed = resource.get("authorization_servers")
        servers: list[Any] = listed if isinstance(listed, list) else []
        named = bool(servers)
        issuer = servers[0] if named else _origin(server_url)
        if not isinstance(issuer, str):
            raise _wrong("it names no authorization server")
        found = await self._authorization_server(issuer)
        if not named:  # as before 2025-06-18, when the server itself had this metadata
            issuer = str(found.get("issuer", ""))
        scope = asked.get("scope") or _joined(resource.get("scopes_supported"))
        return self._read(found, issuer, _resource_of(resource, server_url), scope)

    async def _resource(self, server_url: str, named: str | None) -> Mapping[str, Any]:
        """The metadata of the protected resource; nothing if the server has none, as before 2025-06-18."""
        path = urlsplit(server_url).path.rstrip("/")
        root = _origin(server_url)
        candidates = [named] if named else [f"{root}{_RESOURCE}{path}", f"{root}{_RESOURCE}"]
        for url in dict.fromkeys(candidates):
            if (found := await self._document(url)) is not None:
                return found
        return {}

    async def _authorization_server(self, issuer: str) -> Mapping[str, Any]:
        root, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
        candidates = [f"{root}{_SERVER}{path}", f"{root}{_OPENID}{path}", f"{root}{path}{_OPENID}"]
        for url in dict.fromkeys(candidates):
            if (found := await self._document(url)) is not None:
                return found
        # Before 2025-06-18 these were the defaults of a server without metadata.
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{root}/authorize",
            "token_endpoint": f"{root}/token",
            "registration_endpoint": f"{root}/register",
        }

    async def _document(self, url: str) -> Mapping[str, Any] | None:
        """A JSON document; None if there is none."""
        self.check(url)
        async with self._exchange.open("GET", url, {"accept": "application/json"}) as response:
            if response.status_code != 200:
                return None
            body = await self._exchange.whole(response, DOCUMENT_BYTES_MAX)
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        return found if isinstance(found, dict) else None

    def check(self, url: str) -> str:
        """Raises McpError for an address that may not be asked."""
        try:
            return check_address("url", url, private=self._private)
        except InvalidInput as error:
            raise _wrong(f"it names {url[:200]}: {error.remedy}") from error

    def _read(self, found: Mapping[str, Any], issuer: str, resource: str, scope: str | None) -> AuthorizationServer:
        if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
            raise _wrong("the metadata of its authorization server is for another issuer")
        endpoints = [found.get("authorization_endpoint"), found.get("token_endpoint")]
        if not all(isinstance(each, str) for each in endpoints):
            raise _wrong("its authorization server names no endpoints")
        methods = found.get("code_challenge_methods_supported")
        if isinstance(methods, list) and "S256" not in methods:
            raise _wrong("its authorization server does not take PKCE with S256")
        registration = found.get("registration_endpoint")
        auth = found.get("token_endpoint_auth_methods_supported")
        return AuthorizationServer(
            issuer=str(found["issuer"]),
            authorization_endpoint=self.check(str(endpoints[0])),
            token_endpoint=self.check(str(endpoints[1])),
            resource=resource,
            registration_endpoint=self.check(registration) if isinstance(registration, str) else None,
            scope=scope,
            token_auth_methods=tuple(map(str, auth)) if isinstance(auth, list) else (),
            takes_client_documents=found.get("client_id_metadata_document_supported") is True,
            names_issuer=found.get("authorization_response_iss_parameter_supported") is True,
        )


def _resource_of(metadata: Mapping[str, Any], server_url: str) -> str:
    """The resource that tokens are for: the server's own address, or the part of it that the server names."""
    named = metadata.get("resource")
    if not isinstance(named, str):
        return server_url
    ours, theirs = urlsplit(server_url), urlsplit(named)
    inside = f"{ours.path.rstrip('/')}/".startswith(f"{theirs.path.rstrip('/')}/")
    if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc) or not inside:
        raise _wrong(f"its metadata is for another server, {named[:200]}")
    return named


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _joined(scopes: object) -> str | None:
    return " ".join(map(str, scopes)) if isinstance(scopes, Sequence) and not isinstance(scopes, str) else None


def _wrong(why: str) -> McpError:
    return McpError(McpFault.unauthorized, f"OAuth is not possible with it: {why}")
