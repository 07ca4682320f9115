"""JSON encoder for providers: fast, and never a failed turn for text that is not quite Unicode."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from kelpie.llm.provider.interface import PreparedHistory, PreparedMessage


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


def joined_history(
    rows: Sequence[PreparedMessage], wire: str, encode: Callable[[PreparedMessage], bytes], *, keep: bool
) -> list[bytes | bytearray]:
    """The rows as pieces of JSON, for formats in which no row depends on another. What was joined for an earlier prompt
    is one piece. Without `keep`, a row that is part of it gives up its own copy.
    """
    if not isinstance(rows, PreparedHistory):
        return [encoded for row in rows if (encoded := encode(row))]
    beginning, new = rows.beginning(wire), rows.unencoded(wire)
    added = b",".join([encoded for row in new if (encoded := encode(row))])
    if added:
        if beginning.closed:
            beginning.closed += b","
        beginning.closed += added
    beginning.count = rows.settled
    if not keep:
        for row in new:
            row.wire.pop(wire, None)
    rest = [encoded for row in rows.unsettled if (encoded := encode(row))]
    return [beginning.closed, *rest] if beginning.closed else list(rest)


def array(pieces: Sequence[bytes | bytearray]) -> orjson.Fragment:
    """A JSON array of pieces that are JSON already."""
    return orjson.Fragment(b"[" + b",".join(pieces) + b"]")


def plain(value: Any) -> dict[str, Any]:
    """The fallback encoder of `orjson` for values it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
