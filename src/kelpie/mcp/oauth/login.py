"""Login at the authorization server of an MCP server: registration of Kelpie as a client, PKCE, and tokens.

A person opens the address, agrees there, and is sent back to Kelpie with a code; the code becomes tokens. Tokens are
renewed before they end.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from kelpie.core.errors import InvalidInput, McpError, McpFault
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.mcp.oauth.discovery import DOCUMENT_BYTES_MAX, AuthorizationServer, Discovery
from kelpie.mcp.oauth.grants import Login, OAuthGrant
from kelpie.mcp.transports.http_exchange import HttpExchange

LOGIN_S = 900.0  # that a person may take
LIFE_S_MAX = 10 * 365 * 24 * 3600.0  # of a token
CALLBACK = "/v1/tools/mcp/oauth/callback"
CLIENT_DOCUMENT = "/v1/tools/mcp/oauth/client.json"
BASIC = "client_secret_basic"
_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_JSON = {"content-type": "application/json", "accept": "application/json"}


Identity = tuple[str, str | None, str]  # client id, client secret, and how the secret is sent


def client_document(base_url: str) -> dict[str, Any]:
    """Kelpie as an OAuth client, at an address that is its client id."""
    return {
        "client_id": f"{base_url}{CLIENT_DOCUMENT}",
        "client_name": "Kelpie",
        "application_type": "web" if urlsplit(base_url).scheme == "https" else "native",
        "redirect_uris": [f"{base_url}{CALLBACK}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


class OAuthClient:
    """OAuth requests for one server."""

    def __init__(self, exchange: HttpExchange, *, private: bool) -> None:
        self._exchange = exchange
        self._discovery = Discovery(exchange, private=private)

    async def begin(
        self,
        server_url: str,
        challenge: str,
        base_url: str,
        secrets: tuple[str, str],
        now: Micros,
        known: OAuthGrant | None = None,
    ) -> tuple[OAuthGrant, str]:
        """Begins a login: returns what to store, and the address for the person.

        `base_url` is where the person is sent back to; `secrets` are two fresh random texts. Raises McpError.
        """
        found = await self._discovery.find(server_url, challenge)
        redirect = f"{base_url}{CALLBACK}"
        identity = _known_identity(known, found, redirect) or await self._identity(found, base_url)
        login = Login(secrets[0], secrets[1], redirect, now)
        grant = OAuthGrant(
            issuer=found.issuer,
            authorization_endpoint=found.authorization_endpoint,
            token_endpoint=found.token_endpoint,
            resource=found.resource,
            client_id=identity[0],
            client_secret=identity[1],
            token_auth=identity[2],
            scope=found.scope,
            names_issuer=found.names_issuer,
            by_hand=known is not None and known.by_hand,
            login=login,
        )
        return grant, _address(grant, login)

    async def finish(self, grant: OAuthGrant, code: str, issuer: str | None, now: Micros) -> OAuthGrant:
        """The tokens for the code that the person came back with. Raises InvalidInput, McpError."""
        login = grant.login
        if login is None or now > login.begun_at + LOGIN_S * MICROS_PER_SECOND:
            raise InvalidInput("state", "this login is over; begin another")
        check_issuer(grant, issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": login.redirect_uri,
            "code_verifier": login.verifier,
        }
        return replace(await self._tokens(grant, form, now), login=None)

    async def refresh(self, grant: OAuthGrant, now: Micros) -> OAuthGrant:
        """The grant with a new token. Raises McpError when there is none to be had without the person."""
        if grant.refresh_token is None:
            raise McpError(McpFault.unauthorized, "its token has ended; log in again with `kelpie mcp login`")
        try:
            return await self._tokens(grant, {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}, now)
        except McpError as error:
            if error.kind is not McpFault.unauthorized:
                raise
            why = f"{error.message}; log in again with `kelpie mcp login`"
            raise McpError(error.kind, why, code=error.code) from error

    async def _identity(self, found: AuthorizationServer, base_url: str) -> Identity:
        """The client that Kelpie becomes at this authorization server."""
        if found.takes_client_documents and urlsplit(base_url).scheme == "https":
            return f"{base_url}{CLIENT_DOCUMENT}", None, "none"
        if found.registration_endpoint is None:
            raise McpError(
                McpFault.unauthorized,
                "its authorization server registers no clients. Register one there by hand, with the redirect address "
                f"{base_url}{CALLBACK}, and log in with its client id (`kelpie mcp login --client-id`); or get a token "
                "there and set it as auth_token",
            )
        wanted = client_document(base_url)
        del wanted["client_id"]
        data = await self._post(found.registration_endpoint, _JSON, orjson.dumps(wanted), (200, 201))
        client_id, secret = data.get("client_id"), data.get("client_secret")
        if not isinstance(client_id, str):
            raise McpError(McpFault.unauthorized, "its authorization server gave no client id")
        method = data.get("token_endpoint_auth_method") or (BASIC if secret else "none")
        return client_id, secret if isinstance(secret, str) else None, str(method)

    async def _tokens(self, grant: OAuthGrant, form: dict[str, str], now: Micros) -> OAuthGrant:
        form = {**form, "client_id": grant.client_id, "resource": grant.resource}
        headers = dict(_FORM)
        if grant.client_secret is not None and grant.token_auth == "client_secret_post":
            form["client_secret"] = grant.client_secret
        elif grant.client_secret is not None:
            pair = f"{quote(grant.client_id, safe='')}:{quote(grant.client_secret, safe='')}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        data = await self._post(grant.token_endpoint, headers, urlencode(form).encode(), (200,))
        token = data.get("access_token")
        if not isinstance(token, str) or str(data.get("token_type", "bearer")).lower() != "bearer":
            raise McpError(McpFault.unauthorized, "its authorization server gave no bearer token")
        life, refresh = data.get("expires_in"), data.get("refresh_token")
        return replace(
            grant,
            access_token=token,
            refresh_token=refresh if isinstance(refresh, str) else grant.refresh_token,
            expires_at=now + int(min(life, LIFE_S_MAX) * MICROS_PER_SECOND) if isinstance(life, int | float) else None,
            scope=data["scope"] if isinstance(data.get("scope"), str) else grant.scope,
        )

    async def _post(
        self, url: str, headers: Mapping[str, str], body: bytes, accepted: tuple[int, ...]
    ) -> Mapping[str, Any]:
        self._discovery.check(url)
        async with self._exchange.open("POST", url, headers, body) as response:
            answer = await self._exchange.whole(response, DOCUMENT_BYTES_MAX)
            status = response.status_code
        try:
            data = orjson.loads(answer)
        except orjson.JSONDecodeError:
            data = {}
        data = data if isinstance(data, dict) else {}
        if status not in accepted:
            said = str(data.get("error_description") or data.get("error") or f"status {status}")[:300]
            raise McpError(McpFault.unauthorized, f"its authorization server refused: {said}", code=status)
        return data


def _known_identity(known: OAuthGrant | None, found: AuthorizationServer, redirect: str) -> Identity | None:
    """The client of an earlier login, if it may be used here. Raises McpError for one that a person registered
    elsewhere: its secret is for that authorization server alone."""
    if known is None:
        return None
    if known.by_hand:
        if known.issuer not in ("", found.issuer):
            raise McpError(
                McpFault.unauthorized,
                f"the client id is registered at {known.issuer[:200]}, and the server now names {found.issuer[:200]}; "
                "register a client there, and log in with its client id",
            )
        return known.client_id, known.client_secret, _secret_method(found, known.client_secret)
    same = known.issuer == found.issuer and known.login is not None and known.login.redirect_uri == redirect
    return (known.client_id, known.client_secret, known.token_auth) if same else None


def _secret_method(found: AuthorizationServer, secret: str | None) -> str:
    if secret is None:
        return "none"
    taken = found.token_auth_methods
    return "client_secret_post" if "client_secret_post" in taken and "client_secret_basic" not in taken else BASIC


def check_issuer(grant: OAuthGrant, issuer: str | None) -> None:
    """Raises InvalidInput when the person comes back from another authorization server than the one they went to."""
    if issuer is None and not grant.names_issuer:
        return
    if issuer is None or issuer != grant.issuer:  # exactly: no form of it stands for another
        raise InvalidInput("iss", f"the answer is not from {grant.issuer[:200]}, where this login began; begin another")


def _address(grant: OAuthGrant, login: Login) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": grant.client_id,
        "redirect_uri": login.redirect_uri,
        "state": login.state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": grant.resource,
        **({"scope": grant.scope} if grant.scope else {}),
    }
    mark = "&" if urlsplit(grant.authorization_endpoint).query else "?"
    return f"{grant.authorization_endpoint}{mark}{urlencode(query)}"
