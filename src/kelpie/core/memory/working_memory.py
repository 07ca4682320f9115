"""Working memory: small JSON values that an agent stores under keys, each with an optional expiry.

Pure rules for keys, values, lifetimes and atomic changes. A broken rule raises InvalidInput; an agent's tools give its
text to the model unchanged.
"""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import orjson

from kelpie.core.errors import InvalidInput
from kelpie.core.paging import Page
from kelpie.core.time import MICROS_PER_SECOND, Micros

KEY_CHARS_MAX = 256
DEPTH_MAX = 32
TTL_SECONDS_MAX = 10 * 365 * 24 * 3600
WHOLE_MAX = 2**63 - 1
ORDERS = ("key", "created_at", "updated_at")
Order: TypeAlias = Literal["key", "created_at", "updated_at"]

_KINDS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "an object",
}
_UNPRINTED = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of characters, ends of lines and paragraphs


@dataclass(frozen=True, slots=True)
class WorkingMemoryEntry:
    """An entry; `version` grows with every write of the agent's working memory and is never reused."""

    key: str
    value: Any
    version: int
    created_at: Micros
    updated_at: Micros
    expires_at: Micros | None = None  # from this moment on it is gone; None: it stays


@dataclass(frozen=True, slots=True)
class WorkingMemoryLimits:
    """Limits on the working memory of one agent; keys count as bytes too."""

    value_bytes: int = 64 * 1024
    entries: int = 1000
    bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Increment:
    by: int | float


@dataclass(frozen=True, slots=True)
class Append:
    item: Any


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge patch (RFC 7396): objects are merged at every depth, and null removes a member."""

    members: Mapping[str, Any]


Change: TypeAlias = Increment | Append | Merge


class Keep:
    """Marker: the lifetime of an entry stays as it is."""


KEEP = Keep()
Ttl: TypeAlias = float | Keep | None  # None: it never ends


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """Filter for a list of entries. The times are exclusive, cursors are keys, and `page.order_by` is one of ORDERS."""

    page: Page = Page(order_by="key", descending=False)
    prefix: str = ""
    updated_after: Micros | None = None
    updated_before: Micros | None = None
    created_after: Micros | None = None
    created_before: Micros | None = None


def check_key(key: str) -> str:
    """Raises InvalidInput for an invalid key."""
    if not 0 < len(key) <= KEY_CHARS_MAX:
        raise InvalidInput("key", f"must have 1 to {KEY_CHARS_MAX} characters, but has {len(key)}")
    if any(unicodedata.category(letter) in _UNPRINTED for letter in key):
        raise InvalidInput("key", "must be printable; remove control characters and line breaks")
    if any(part in (".", "..") for part in key.split("/")):
        raise InvalidInput("key", "must not contain '.' or '..' between slashes, because URLs drop them")
    return key


def encoded(value: Any, limits: WorkingMemoryLimits) -> str:
    """The value as JSON text. Raises InvalidInput for one that is too large, too deep or not JSON."""
    try:
        raw = orjson.dumps(value)
    except TypeError as error:
        raise InvalidInput("value", f"is not valid JSON ({error}); use text, numbers, lists or objects") from None
    if len(raw) > limits.value_bytes:
        raise InvalidInput("value", f"has {len(raw)} bytes as JSON; the limit is {limits.value_bytes}")
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and _depth(value) > DEPTH_MAX:
        raise InvalidInput("value", f"is nested deeper than {DEPTH_MAX} levels; make it flatter")
    return raw.decode()


def _depth(value: Any) -> int:
    level, depth = _children(value), 0
    while level is not None and depth <= DEPTH_MAX:
        below = [found for node in level if (found := _children(node)) is not None]
        depth += 1
        level = [child for found in below for child in found] if below else None
    return depth


def _children(node: Any) -> list[Any] | None:
    """The members of a list or an object; None for anything else."""
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    return cast("list[Any]", node) if isinstance(node, list) else None


def size_of(key: str, text: str) -> int:
    """Bytes that an entry counts for."""
    return len(key.encode()) + len(text.encode())


def end_of(ttl_seconds: float | None, now: Micros) -> Micros | None:
    """The time at which a lifetime that starts now ends. Raises InvalidInput."""
    if ttl_seconds is None:
        return None
    if not 0 < ttl_seconds <= TTL_SECONDS_MAX:  # this way round, not-a-number is refused too
        raise InvalidInput(
            "ttl_seconds", f"must be more than 0 and at most {TTL_SECONDS_MAX}; omit it to keep the entry forever"
        )
    return now + max(1, round(ttl_seconds * MICROS_PER_SECOND))


def changed(before: WorkingMemoryEntry | None, change: Change) -> Any:
    """The value after the change; a missing entry starts as 0, an empty list or an empty object.

    Raises InvalidInput for a value that cannot be changed in this way.
    """
    match change:
        case Increment():
            return _sum(0 if before is None else before.value, change.by)
        case Append():
            return [*_kept(before, list[Any]), change.item]
        case Merge():
            return _merged(_kept(before, dict[str, Any]), change.members)


def _sum(value: Any, by: int | float) -> int | float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput("increment", f"needs a number, but the value is {_kind(value)}")
    total = value + by
    if not math.isfinite(total) or (isinstance(total, int) and abs(total) > WHOLE_MAX):
        raise InvalidInput("increment", "gives a number that is too large to be stored")
    return total


def _kept(before: WorkingMemoryEntry | None, kind: Any) -> Any:
    empty = kind()
    if before is None:
        return empty
    if not isinstance(before.value, type(empty)):
        told = ("append", "a list") if empty == [] else ("merge", "an object")
        raise InvalidInput(told[0], f"needs {told[1]}, but the value is {_kind(before.value)}")
    return before.value


def _merged(value: Any, patch: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise InvalidInput("merge", f"is nested deeper than {DEPTH_MAX} levels; make it flatter")
    merged = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else dict[str, Any]()
    for name, new in patch.items():
        if new is None:
            merged.pop(name, None)
        elif isinstance(new, dict):
            merged[name] = _merged(merged.get(name), cast("dict[str, Any]", new), depth + 1)
        else:
            merged[name] = new
    return merged


def _kind(value: Any) -> str:
    return _KINDS.get(type(value).__name__, "null")
