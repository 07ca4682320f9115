"""Signing in to the dashboard: a key or the password is exchanged for a session in a cookie that scripts cannot read.

The path is beside the page, so the browser keeps the cookie for the page and everything below it, whatever prefix a
proxy puts before them.
"""

from typing import Any

import orjson
from starlette.requests import Request

from kelpie import __version__
from kelpie.accounts.authentication import Authenticator
from kelpie.accounts.sessions import LIFE_S, Sessions
from kelpie.core.access.credential_scopes import OPERATOR, Authorization
from kelpie.core.errors import InvalidInput, Unauthorized
from kelpie.server.edge import session_cookie
from kelpie.server.edge.authentication import address_of
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.times import timestamp

PATH = "/session"
CREDENTIAL_CHARS_MAX = 1024
_NOT_STORED = {"Cache-Control": "no-store"}


async def show(request: Request) -> JsonAnswer:
    """Whether a login is needed, and as whom the browser is signed in."""
    authenticator: Authenticator = request.app.state.authenticator
    if not authenticator.protected:
        return JsonAnswer(_shape(OPERATOR, protected=False), headers=_NOT_STORED)
    text = _cookie(request)
    try:
        given = await authenticator.admit(text, address_of(request.scope)) if text else None
    except Unauthorized:
        given = None
    return JsonAnswer(_shape(given, protected=True), headers=_NOT_STORED)


async def sign_in(request: Request) -> JsonAnswer:
    """Opens a session. Raises Unauthorized, Overloaded, Forbidden for a page of another site, and InvalidInput."""
    session_cookie.check_page("POST", _headers(request), request.app.state.allowed_origins)
    authenticator: Authenticator = request.app.state.authenticator
    if not authenticator.protected:
        return JsonAnswer(_shape(OPERATOR, protected=False), headers=_NOT_STORED)
    sessions: Sessions = request.app.state.sessions
    _, text = await sessions.open(await _credential(request), address_of(request.scope))
    given = await authenticator.admit(text, address_of(request.scope))
    answer = JsonAnswer(_shape(given, protected=True), headers=_NOT_STORED)
    _set_cookie(request, answer, text, LIFE_S)
    return answer


async def sign_out(request: Request) -> JsonAnswer:
    """Ends the session of the browser and removes its cookie."""
    session_cookie.check_page("DELETE", _headers(request), request.app.state.allowed_origins)
    if text := _cookie(request):
        sessions: Sessions = request.app.state.sessions
        await sessions.close(text)
    answer = JsonAnswer(_shape(None, protected=request.app.state.authenticator.protected), headers=_NOT_STORED)
    _set_cookie(request, answer, "", 0)
    return answer


async def _credential(request: Request) -> str:
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        body = None
    given = body.get("credential") if isinstance(body, dict) else None
    if not isinstance(given, str) or not given.strip() or len(given) > CREDENTIAL_CHARS_MAX:
        raise InvalidInput("credential", "must be an API key or the server password")
    return given.strip()


def _set_cookie(request: Request, answer: JsonAnswer, text: str, life_s: int) -> None:
    """A cookie without a path: the browser takes the folder of this address, as it sees it."""
    answer.set_cookie(
        session_cookie.cookie_name(request.headers.get("host", "")),
        text,
        max_age=life_s,
        path=None,
        secure=request.headers.get("origin", "").startswith("https://"),
        httponly=True,
        samesite="strict",
    )


def _cookie(request: Request) -> str | None:
    return session_cookie.session_of(request.headers.get("cookie", ""), request.headers.get("host", ""))


def _headers(request: Request) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in request.scope["headers"]}


def _shape(given: Authorization | None, *, protected: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"version": __version__, "login_required": protected, "signed_in": given is not None}
    if given is None:
        return shown
    return shown | {
        "operator": given.operator,
        "scopes": sorted(given.scopes),
        "user_id": given.user_id,
        "organization_id": given.organization_id,
        "key_id": given.key_id,
        "agent_ids": None if given.grants is None else sorted(given.grants),
        "expires_at": None if given.expires_at is None else timestamp(given.expires_at),
    }
