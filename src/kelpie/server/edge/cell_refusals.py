"""Refusals to the code of a tool, in the record of calls: each is recorded before the code gets the answer.

Where it cannot be recorded the code gets that error instead, so that no refusal is missing from the record. Code that
repeats the same request fills no table.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope, Send

from kelpie.core.access.callers import Caller
from kelpie.core.errors import StorageError
from kelpie.server.http import errors

if TYPE_CHECKING:
    from kelpie.accounts.passports import Passports
    from kelpie.api import Api

SEEN = "kelpie.refused"  # in the scope of a request out of a cell: what of its call is recorded already
RECORDED_MAX = 16  # of one call, each another request
ASKED_CHARS_MAX = 200

_FORBIDDEN = 403


def recording(
    passports: "Passports",
    api: "Callable[[Caller], Api]",
    scope: Scope,
    receive: Receive,
    send: Send,
    passport: str,
) -> Send:
    """Sends messages on, and records a refusal."""
    replaced = False

    async def told(message: Message) -> None:
        nonlocal replaced
        if message["type"] == "http.response.start" and message["status"] == _FORBIDDEN:
            try:
                await _record(passports, api, scope, passport)
            except StorageError as error:
                replaced = True
                await errors.answer(error)(scope, receive, send)
        if not replaced:
            await send(message)

    return told


async def _record(passports: "Passports", api: "Callable[[Caller], Api]", scope: Scope, shown: str) -> None:
    seen: set[str] = scope[SEEN]
    passport = passports.find(shown)
    asked = f"{scope['method']} {scope['path']}"[:ASKED_CHARS_MAX]
    if passport is None or asked in seen or len(seen) >= RECORDED_MAX:
        return
    seen.add(asked)
    caller = Caller(passport.user_id, passport.organization_id, sees_secrets=False, passport=passport)
    try:
        await api(caller).permissions.refused(passport, asked)
    except StorageError:
        seen.discard(asked)
        raise
