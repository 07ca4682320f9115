"""JSON without the module `json`, whose import takes longer than all else that a cell does at its start.

It calls the part of `json` that is written in C; where that is not there, or not as it is known, `json` does the work.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Usual:
    """What the scanner asks its decoder for."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


def _refuse(value: "Any") -> "Any":
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _known() -> bool:
    """Whether it works as it is used here."""
    return loads(b'{"a": [1, -2.5, "\\u00e9", null]}') == {"a": [1, -2.5, "é", None]} and dumps(["é", {"a": None}]) == (
        b'["\\u00e9", {"a": null}]'
    )


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    def loads(data: bytes) -> "Any":
        """Raises ValueError."""
        try:
            scan: Any = make_scanner(_Usual())  # pyright: ignore[reportArgumentType]
            return scan(data.decode(), 0)[0]
        except StopIteration as error:
            raise ValueError("this is no JSON") from error

    def dumps(value: "Any") -> bytes:
        """Raises TypeError, ValueError."""
        pieces = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)(value, 0)
        return "".join(pieces).encode()

    if not _known():
        raise ImportError("the fast part of json is another one")
except (ImportError, TypeError, ValueError, AttributeError):
    import json

    def loads(data: bytes) -> "Any":
        """Raises ValueError."""
        return json.loads(data)

    def dumps(value: "Any") -> bytes:
        """Raises TypeError, ValueError."""
        return json.dumps(value).encode()
