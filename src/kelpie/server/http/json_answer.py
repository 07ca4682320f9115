"""Answers are plain dicts, built by pure functions and dumped once; no model validates them on the way out.

A long list is built in pieces, and other requests get a turn between two of them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from starlette.responses import Response

PIECE = 100  # items that are built in one go
PIECE_BYTES = 1024 * 1024  # the same, where items are large

S = TypeVar("S")
T = TypeVar("T")


class JsonAnswer(Response):
    """A JSON body."""

    media_type = "application/json"

    def __init__(self, data: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(data), status_code, headers)


async def built(items: Sequence[T], shape: Callable[[T], S]) -> list[S]:
    """Each item as `shape` builds it."""
    found: list[S] = []
    for start in range(0, len(items), PIECE):
        if start:
            await asyncio.sleep(0)
        found += [shape(item) for item in items[start : start + PIECE]]
    return found


async def listed(items: Sequence[T], shape: Callable[[T], Any]) -> JsonAnswer:
    """The list of these items, each as `shape` builds it."""
    return await joined(items, lambda item: (shape(item),))


async def joined(items: Sequence[T], shapes: Callable[[T], Iterable[Any]]) -> JsonAnswer:
    """The list of everything that `shapes` builds from each item."""
    return JsonAnswer(await joined_json(items, shapes))


async def joined_json(items: Sequence[T], shapes: Callable[[T], Iterable[Any]]) -> orjson.Fragment:
    """The same as a part of a larger answer."""
    found: list[bytes] = []
    waiting = 0
    for item in items:
        if waiting > PIECE_BYTES:
            await asyncio.sleep(0)
            waiting = 0
        raw = [orjson.dumps(one) for one in shapes(item)]
        found += raw
        waiting += PIECE_BYTES // PIECE + sum(map(len, raw))
    return orjson.Fragment(b"[" + b",".join(found) + b"]")
