"""Cross-origin requests: which web pages may use the API from another origin, as plain ASGI.

Pages of this machine and of the configured origins may, with credentials. A server that requires a login also answers
all other pages, without the credentials that a browser adds by itself: a page has to bring a key of its own.
"""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie.core.access.hosts import origin_of
from kelpie.server.http.headers.answer_headers import ANSWER_HEADERS

_LOCAL = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")
_ANY = ".*"


class AllowedOrigins:
    """Origins whose pages are trusted: those of this machine, and the configured ones."""

    def __init__(self, configured: Iterable[str]) -> None:
        self._configured = frozenset(filter(None, map(origin_of, configured)))

    def __contains__(self, origin: str) -> bool:
        return _LOCAL.fullmatch(origin) is not None or self.is_configured(origin)

    def is_configured(self, origin: str) -> bool:
        return origin_of(origin) in self._configured


class CrossOrigin:
    """Adds the CORS headers and answers preflights."""

    def __init__(self, app: ASGIApp, allowed: AllowedOrigins, *, protected: bool) -> None:
        self._app = app
        self._allowed = allowed
        self._trusting = _cors(app, credentials=True)
        self._others = _cors(app, credentials=False) if protected else app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is None:
            await self._app(scope, receive, send)
        elif origin in self._allowed:
            await self._trusting(scope, receive, send)
        else:
            await self._others(scope, receive, send)


def _cors(app: ASGIApp, *, credentials: bool) -> CORSMiddleware:
    return CORSMiddleware(
        app,
        allow_origin_regex=_ANY,
        allow_methods=["*"],
        allow_headers=["*"],
        allow_credentials=credentials,
        allow_private_network=True,  # most servers are in one
        expose_headers=ANSWER_HEADERS,
    )
