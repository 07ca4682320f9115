"""JSON encoder for providers: fast, and never a failed turn for text that is not quite Unicode."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson


def dumps(value: object) -> bytes:
    """The value as JSON; mappings of any kind are objects."""
    try:
        return orjson.dumps(value, default=plain)
    except TypeError:
        # Half a surrogate pair or a number of more than 64 bits: rare, and no reason to fail a turn.
        return json.dumps(value, ensure_ascii=False, default=plain).encode("utf-8", "replace")


def kept(values: Iterable[object]) -> bytes:
    """The values as JSON, separated by commas, in a copy of their own: it stays in memory as long as its message.

    The result of `orjson` is cut from a buffer of 4 KB that it never returns.
    """
    return bytes(memoryview(b",".join(map(dumps, values))))


def array(pieces: list[bytes]) -> orjson.Fragment:
    """A JSON array of pieces that are JSON already."""
    return orjson.Fragment(b"[" + b",".join(pieces) + b"]")


def plain(value: Any) -> dict[str, Any]:
    """The fallback encoder of `orjson` for values it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
