"""Whole ids from their first characters, as tables on a terminal show them."""

import re

from kelpie.core.errors import CallerError
from kelpie.world.http.cli_client import Client

MATCHES_SHOWN = 10
CHARS_MIN = 4  # of the random part
_WHOLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PART = re.compile(r"[0-9a-f][0-9a-f-]*")


class UnknownId(CallerError):
    """No object has this id, or several ids begin with it."""


def whole_id(client: Client, kind: str, typed: str, noun: str, remedy: str) -> str:
    """Returns the id of this kind (`run`) that begins with what was typed, with or without `run-` before it.

    `noun` and `remedy` are for the error. Raises UnknownId, Unreachable, ErrorResponse.
    """
    start = part_of(kind, typed)
    if start is None:
        few = f"type at least {CHARS_MIN} characters of the id"
        raise UnknownId(f"'{typed[:80]}' is not the id of a {noun}; {few}. {remedy}")
    if _WHOLE.fullmatch(start):
        return f"{kind}-{start}"
    found = matches(client, kind, start)
    if not found:
        raise UnknownId(f"no {noun} has an id that starts with {kind}-{start}. {remedy}")
    if len(found) > 1:
        raise ambiguous(f"{kind}-{start}", found)
    return found[0][0]


def part_of(kind: str, typed: str) -> str | None:
    """The first characters of an id without its kind; None if this cannot be an id."""
    start = typed.strip().lower().removeprefix(f"{kind}-")
    return start if len(start) >= CHARS_MIN and _PART.fullmatch(start) else None


def matches(client: Client, kind: str, start: str) -> list[tuple[str, str | None]]:
    """The ids that begin with this, each with the name of its object. Raises Unreachable, ErrorResponse."""
    found = client.get("/v1/kelpie/ids", prefix=f"{kind}-{start}", limit=MATCHES_SHOWN + 1)
    return [(each["id"], each["name"]) for each in found]


def ambiguous(typed: str, found: list[tuple[str, str | None]]) -> UnknownId:
    """The error for characters with which several ids begin."""
    listed = "".join(f"\n  {each}{f'  {name}' if name else ''}" for each, name in found[:MATCHES_SHOWN])
    more = "\n  and more" if len(found) > MATCHES_SHOWN else ""
    return UnknownId(f"several ids start with {typed}; type more of it:{listed}{more}")
