"""Authentication as plain ASGI: after it, a request has an authorization and a caller, and endpoints need not check.

Health and the pages without data are open to every client. Preflights never get here: they carry no credential, and
CORS answers them.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie.core.access.callers import Caller
from kelpie.core.access.credential_scopes import Authorization
from kelpie.core.access.hosts import origin_of
from kelpie.core.errors import Forbidden, InvalidId, InvalidInput, KelpieError
from kelpie.core.ids import UserId
from kelpie.observe import logs
from kelpie.server.edge import cell_listener, session_cookie
from kelpie.server.edge.cell_refusals import recording
from kelpie.server.edge.cross_origin import AllowedOrigins
from kelpie.server.http import errors, route_access

if TYPE_CHECKING:
    from kelpie.accounts.authentication import Authenticator
    from kelpie.accounts.passports import Passports
    from kelpie.accounts.quotas.quotas import Quotas
    from kelpie.api import Api
    from kelpie.fairness.processor_time import ProcessorTime

# A browser comes back from an OAuth login without a credential; the login itself is the proof.
_OAUTH = ("/v1/tools/mcp/oauth/callback", "/v1/tools/mcp/oauth/client.json")
EXEMPT = frozenset({"/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/", *_OAUTH})

_READ = frozenset({b"authorization", b"x-bare-password", b"user_id", b"origin", b"cookie", b"host", b"sec-fetch-site"})

_log = logs.get("server")


class AuthenticationMiddleware:
    """Puts `pass`, `caller` and `admit_again` into the scope, or answers 401, 403 or 429."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: "Authenticator",
        passports: "Passports",
        api: "Callable[[Caller], Api]",
        quotas: "Quotas",
        processor_time: "ProcessorTime",
        pages: frozenset[str] = frozenset(),
        sessions: AllowedOrigins | None = None,
    ) -> None:
        """`pages` are the paths of pages that show no data. `sessions` are the origins from which sessions of browsers
        are accepted, beside the server's own; None accepts no sessions.
        """
        self._app = app
        self._open_paths = EXEMPT | pages
        self._authenticator = authenticator
        self._sessions = sessions
        self._passports = passports
        self._api = api
        self._quotas = quotas
        self._processor_time = processor_time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (passport := scope.get(cell_listener.CELL)) is not None:
            send = recording(self._passports, self._api, scope, receive, send, passport)
        usage = None
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            try:
                await self._admit(scope)
                usage = await self._processor_time.admit(scope["caller"].organization_id)
            except KelpieError as error:
                told = errors.answer(error)
                if told.status_code >= 500:
                    _log.error(
                        "authentication_failed",
                        "Authentication failed: the key store cannot be read",
                        status=told.status_code,
                        exc_info=error,
                    )
                await told(scope, receive, send)
                return
        answering = self._app(scope, receive, send)
        await (answering if usage is None else usage.run(_started(answering)))

    async def _admit(self, scope: Scope) -> None:
        headers = {name: _text(value) for name, value in scope["headers"] if name in _READ}
        if cell_listener.CELL in scope:
            await cell_listener.admit(self._passports, self._api, scope, credential_of(headers))
            self._quotas.count_request(scope["caller"].organization_id)
            return
        credential = route_access.hook_token(scope["path"])
        if credential is None:
            credential = credential_of(headers) or self._session_of(scope["method"], headers)
        admit = partial(self._authenticator.admit, credential, address_of(scope))
        given = await admit()
        _check_origin(given, headers.get(b"origin"))
        route_access.check(given, scope["method"], scope["path"])
        scope["pass"], scope["admit_again"] = given, admit  # a stream without an end asks now and then
        scope["caller"] = caller = await self._authenticator.caller(given, _named_user(headers))
        self._quotas.count_request(caller.organization_id)

    def _session_of(self, method: str, headers: Mapping[bytes, str]) -> str | None:
        """The session of a browser, if sessions are in use here. Raises Forbidden for a page of another site."""
        if self._sessions is None or not self._authenticator.protected or b"cookie" not in headers:
            return None
        found = session_cookie.session_of(headers[b"cookie"], headers.get(b"host", ""))
        if found is not None:
            session_cookie.check_page(method, headers, self._sessions)
        return found


async def _started(answering: Awaitable[None]) -> None:
    await answering


def credential_of(headers: Mapping[bytes, str]) -> str | None:
    """The password, key or token of a request: `Authorization: Bearer ...` or `X-BARE-PASSWORD: password ...`."""
    kind, _, value = headers.get(b"authorization", "").partition(" ")
    if kind.lower() != "bearer" or not value:
        kind, _, value = headers.get(b"x-bare-password", "").partition(" ")
        if kind != "password":
            return None
    return value.strip() or None


def address_of(scope: Scope) -> str:
    """The address of the client; `forwarded_client.py` has put it there if a trusted proxy is in between."""
    client = scope.get("client")
    return client[0] if client else ""


def _check_origin(given: Authorization, origin: str | None) -> None:
    """Refuses a page of another site, even if it got hold of a token. Programs send no Origin."""
    if given.hostname is not None and origin is not None and origin_of(origin) != origin_of(given.hostname):
        raise Forbidden("This token may only be used by the pages of another site.")


def _text(value: bytes) -> str:
    try:
        return value.decode()  # clients send letters that are not ASCII as UTF-8
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named_user(headers: Mapping[bytes, str]) -> UserId | None:
    text = headers.get(b"user_id")
    if not text:
        return None
    try:
        return UserId.parse(text)
    except InvalidId:
        raise InvalidInput("user_id", f"'{text[:80]}' is not of the form user-<uuid4>") from None
