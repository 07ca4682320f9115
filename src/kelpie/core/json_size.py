"""Size of a JSON document: the number of its values, counted before they are made, and its depth."""

from collections.abc import Generator, Iterable
from typing import Any, cast


def has_more_values(raw: bytes, values_max: int) -> bool:
    """Checks whether the document has more than this many values."""
    count = value_count(raw, values_max)
    while True:
        try:
            next(count)
        except StopIteration as ended:
            return ended.value


def value_count(raw: bytes, values_max: int) -> Generator[None, None, bool]:
    """The same in steps, between which a caller with a large document can do something else.

    Each value but the first has a bracket, a brace or a comma before it. Most documents are counted by these signs
    alone; where texts hold as many signs, the texts are left out of the count.
    """
    if len(raw) < values_max or _signs(raw) < values_max:
        return False
    yield
    plain = raw.replace(b"\\\\", b"")
    yield
    plain = plain.replace(b'\\"', b"")
    yield
    if plain.count(b'"') > 4 * values_max:  # two for each text, and a text for the name of each value
        return True
    plain = b"".join(plain.split(b'"')[::2])
    yield
    return _signs(plain) >= values_max


def _signs(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def is_deeper(value: Any, depth_max: int) -> bool:
    """Checks whether a document is nested deeper than this many levels."""
    level: list[Any] = [value]
    for _ in range(depth_max):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return cast("dict[str, Any]", node).values()
    return cast("list[Any]", node) if isinstance(node, list) else ()
