"""What is stored of an OAuth login at an MCP server: the client that Kelpie is there, the tokens, and an open login.

It is one JSON text, encrypted as a whole.
"""

from dataclasses import asdict, dataclass

import orjson

from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class Login:
    """A login that waits for the person to come back from the authorization server."""

    state: str
    verifier: str
    redirect_uri: str
    begun_at: Micros


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    resource: str  # the MCP server that tokens are for
    client_id: str
    client_secret: str | None = None
    token_auth: str = "none"  # how the client proves who it is at the token endpoint
    scope: str | None = None
    names_issuer: bool = False  # the authorization server adds `iss` to its redirects
    by_hand: bool = False  # a person registered the client; without an `issuer`, it has not been used yet
    access_token: str | None = None
    refresh_token: str | None = None
    expires_at: Micros | None = None  # None: it is not known
    login: Login | None = None

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()


def client_by_hand(client_id: str, client_secret: str | None) -> OAuthGrant:
    """A client that a person registered at the authorization server, before its first login."""
    return OAuthGrant("", "", "", "", client_id, client_secret, by_hand=True)


def grant_from_json(text: str) -> OAuthGrant:
    data = orjson.loads(text)
    login = data.pop("login", None)
    return OAuthGrant(**data, login=None if login is None else Login(**login))
