"""A checkpoint in pieces, each small enough to be parsed in a moment.

The document is one JSON text that can be large. `answer` runs in a worker process: it parses the document, checks its
format, version and checksum, and returns its rows in pieces. `joined` puts them together again in the server, where
other threads get their turn between two pieces.
"""

import struct
from collections.abc import Iterator
from typing import Any, cast

import orjson

from kelpie.core.errors import InvalidInput
from kelpie.core.json_size import has_more_values
from kelpie.core.memory import checkpoints
from kelpie.core.memory.checkpoints import FIELD, Memory

VALUES_MAX = 1_000_000  # of a document
ROW_VALUES_MAX = 50_000
PIECE_BYTES = 256 * 1024
PIECE_ROWS = 500

_LENGTH = struct.Struct(">I")
_REFUSED, _ACCEPTED = b"-", b"+"
_ROWS = (("archive", "passages"), ("blocks",), ("working_memory",), ("messages",), ("facts",), ("entities",))


def answer(raw: bytes) -> bytes:
    """The pieces of a document, or the error in it."""
    try:
        return _ACCEPTED + b"".join(_LENGTH.pack(len(piece)) + piece for piece in _pieces(_opened(raw)))
    except InvalidInput as error:
        return _REFUSED + orjson.dumps([error.field, error.remedy])


def joined(answered: bytes) -> dict[str, Any]:
    """The document that a worker returned in pieces, without its checksum. Raises InvalidInput for an invalid one."""
    if answered[:1] == _REFUSED:
        raise InvalidInput(*orjson.loads(answered[1:]))
    pieces = _split(memoryview(answered)[1:])
    document: dict[str, Any] = orjson.loads(next(pieces))
    for piece in pieces:
        path, rows = orjson.loads(piece)
        _place(document["memory"], path).extend(rows)
    return document


def _opened(raw: bytes) -> dict[str, Any]:
    if has_more_values(raw, VALUES_MAX):
        raise InvalidInput(FIELD, f"has more than {VALUES_MAX} values, which is the limit")
    return checkpoints.opened(raw)


def _pieces(document: dict[str, Any]) -> Iterator[bytes]:
    """The document without its rows first, and then its rows."""
    lists: list[tuple[tuple[str, ...], list[Any]]] = []
    memory: Any = document.get("memory")
    for path in _ROWS:
        holder: Any = memory
        for name in path[:-1]:
            holder = _member(holder, name)
        if isinstance(rows := _member(holder, path[-1]), list):
            lists.append((path, cast("list[Any]", rows)))
            holder[path[-1]] = []
    yield _written(document, FIELD)
    for path, rows in lists:
        yield from _row_pieces(path, rows)


def _row_pieces(path: tuple[str, ...], rows: list[Any]) -> Iterator[bytes]:
    head = orjson.dumps(path)
    waiting: list[bytes] = []
    size = 0
    for number, row in enumerate(rows):
        one = _written(row, f"memory.{'.'.join(path)}[{number}]")
        if waiting and (size + len(one) > PIECE_BYTES or len(waiting) == PIECE_ROWS):
            yield b"[" + head + b",[" + b",".join(waiting) + b"]]"
            waiting, size = [], 0
        waiting.append(one)
        size += len(one)
    if waiting:
        yield b"[" + head + b",[" + b",".join(waiting) + b"]]"


def _written(value: Any, where: str) -> bytes:
    raw = orjson.dumps(value)
    if has_more_values(raw, ROW_VALUES_MAX):
        raise InvalidInput(where, f"has more than {ROW_VALUES_MAX} values, which is the limit")
    return raw


def _split(rest: memoryview) -> Iterator[memoryview]:
    while rest:
        (length,) = _LENGTH.unpack(rest[: _LENGTH.size])
        yield rest[_LENGTH.size : _LENGTH.size + length]
        rest = rest[_LENGTH.size + length :]


def _member(holder: Any, name: str) -> Any:
    return cast("Memory", holder).get(name) if isinstance(holder, dict) else None


def _place(memory: Memory, path: list[str]) -> list[Any]:
    found: Any = memory
    for name in path:
        found = found[name]
    return found
