"""An agent file in pieces, each small enough to be parsed in a moment.

The file is one JSON text that can be large, and anybody may have written it. `answer` runs in a worker process: it
unpacks and parses the file, checks its form, and returns it without its messages, and the messages in pieces.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, cast

import orjson

from kelpie.core.errors import InvalidInput
from kelpie.core.json_size import has_more_values, is_deeper
from kelpie.server.letta.agent_files import legacy_file

FIELD = "file"
UNPACKED_BYTES_MAX = 512 * 1024 * 1024  # of a compressed file
VALUES_MAX = 5_000_000  # of a file
ENTRY_VALUES_MAX = 50_000  # of an agent, a tool, a message and so on
DEPTH_MAX = 64
AGENTS_MAX = 100
ENTRIES_MAX = 1_000  # blocks, tools, files and so on, of each kind
MESSAGES_MAX = 200_000  # of all agents together
REFERENCE_CHARS_MAX = 200
PIECE_BYTES = 256 * 1024
PIECE_ROWS = 100

LISTS = ("groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills")
NOTES = legacy_file.NOTES

_CONTEXT = "in_context_message_ids"
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it
_LENGTH = struct.Struct(">I")
_REFUSED, _ACCEPTED = b"-", b"+"
_CORRUPT = "Corrupted agent file format: the file is not JSON or was cut off"


def answer(raw: bytes) -> bytes:
    """The pieces of a file, or the error in it."""
    try:
        return _ACCEPTED + b"".join(_LENGTH.pack(len(piece)) + piece for piece in _pieces(opened(raw)))
    except InvalidInput as error:
        return _REFUSED + orjson.dumps([error.field, error.remedy])


def split(answered: bytes) -> Iterator[memoryview]:
    """The pieces that a worker returned: the file without its messages first. Raises InvalidInput for an invalid
    file."""
    if answered[:1] == _REFUSED:
        raise InvalidInput(*orjson.loads(answered[1:]))
    rest = memoryview(answered)[1:]
    while rest:
        (length,) = _LENGTH.unpack(rest[: _LENGTH.size])
        yield rest[_LENGTH.size : _LENGTH.size + length]
        rest = rest[_LENGTH.size + length :]


def opened(raw: bytes) -> dict[str, Any]:
    """The file as an object with lists of objects under the known names. Raises InvalidInput."""
    document = _parsed(_unpacked(raw))
    if isinstance(document, str):  # some clients encode it twice
        document = _parsed(document.encode())
    if not isinstance(document, dict):
        raise InvalidInput(FIELD, "is not an agent file: it must contain one JSON object")
    found = cast("dict[str, Any]", document)
    found = found | {NOTES: []} if "agents" in found else legacy_file.converted(found)
    _check_lists(found)
    return found


def _unpacked(raw: bytes) -> bytes:
    if raw[:2] != _GZIP:
        return raw.removeprefix(_BYTE_ORDER_MARK)
    unpacking = zlib.decompressobj(wbits=31)
    try:
        data = unpacking.decompress(raw, UNPACKED_BYTES_MAX + 1)
    except zlib.error:
        raise InvalidInput(FIELD, "is damaged: it cannot be decompressed") from None
    if len(data) > UNPACKED_BYTES_MAX:
        raise InvalidInput(FIELD, f"has more than {UNPACKED_BYTES_MAX} bytes when it is decompressed")
    if not unpacking.eof:
        raise InvalidInput(FIELD, "is incomplete: the compressed data ends too early")
    return data.removeprefix(_BYTE_ORDER_MARK)


def _parsed(raw: bytes) -> Any:
    if not raw.strip():
        raise InvalidInput(FIELD, "is empty; send an agent file")
    if has_more_values(raw, VALUES_MAX):
        raise InvalidInput(FIELD, f"has more than {VALUES_MAX} values, which is the limit")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(FIELD, f"{_CORRUPT} (line {error.lineno}, column {error.colno})") from None


def _check_lists(document: dict[str, Any]) -> None:
    """Replaces missing lists by empty ones. Raises InvalidInput."""
    for name, most in (("agents", AGENTS_MAX), *((name, ENTRIES_MAX) for name in LISTS)):
        listed = document[name] = document.get(name) or []
        _check_list(listed, name, most)
    if not document["agents"]:
        raise InvalidInput("file.agents", "is empty; an agent file contains at least one agent")
    for name in ("agents", *LISTS[:-1]):
        _check_references(document[name], name)
    seen: set[str] = set()
    for number, agent in enumerate(document["agents"]):
        where = f"agents[{number}].messages"
        rows = agent["messages"] = agent.get("messages") or []
        _check_list(rows, where, MESSAGES_MAX)
        for reference in _check_references(rows, where):
            if reference in seen:
                raise InvalidInput(f"file.{where}", f"the id '{reference}' occurs in two agents")
            seen.add(reference)
    if len(seen) > MESSAGES_MAX:
        raise InvalidInput("file.agents", f"have {len(seen)} messages together; at most {MESSAGES_MAX} are allowed")


def _check_list(listed: Any, name: str, most: int) -> None:
    if not isinstance(listed, list):
        raise InvalidInput(f"file.{name}", "must be a list")
    rows = cast("list[Any]", listed)
    if len(rows) > most:
        raise InvalidInput(f"file.{name}", f"has {len(rows)} entries; at most {most} are allowed")
    for number, entry in enumerate(rows):
        if not isinstance(entry, dict):
            raise InvalidInput(f"file.{name}[{number}]", "must be an object")


def _check_references(entries: list[dict[str, Any]], name: str) -> list[str]:
    """The ids of these entries. Raises InvalidInput for one that is missing or occurs twice."""
    found: list[str] = []
    for number, entry in enumerate(entries):
        reference: Any = entry.get("id")
        if not isinstance(reference, str) or not 0 < len(reference) <= REFERENCE_CHARS_MAX:
            raise InvalidInput(f"file.{name}[{number}].id", f"must be text of 1 to {REFERENCE_CHARS_MAX} characters")
        found.append(reference)
    if len(set(found)) != len(found):
        raise InvalidInput(f"file.{name}", "two entries have the same id")
    return found


def _pieces(document: dict[str, Any]) -> Iterator[bytes]:
    """The file with the ids of the messages only, and then the messages, each piece with the number of their agent."""
    histories: list[list[Any]] = []
    for number, agent in enumerate(document["agents"]):
        histories.append(agent.pop("messages"))
        context = agent.pop(_CONTEXT, None) if _is_id_list(agent.get(_CONTEXT), f"agents[{number}]") else None
        _written(agent, f"agents[{number}]")
        if context is not None:
            agent[_CONTEXT] = context
        agent["message_references"] = [row["id"] for row in histories[-1]]
    for name in LISTS:
        for number, entry in enumerate(document[name]):
            _written(entry, f"{name}[{number}]")
    yield orjson.dumps({name: document[name] for name in ("agents", *LISTS, NOTES)})
    for number, rows in enumerate(histories):
        yield from _row_pieces(number, rows)


def _is_id_list(given: Any, where: str) -> bool:
    """True for a list of ids, which may be as long as the history. Raises InvalidInput for a longer one."""
    if not isinstance(given, list) or not all(isinstance(each, str) for each in cast("list[Any]", given)):
        return False
    if (count := len(cast("list[Any]", given))) > MESSAGES_MAX:
        raise InvalidInput(f"file.{where}.{_CONTEXT}", f"has {count} entries; at most {MESSAGES_MAX} are allowed")
    return True


def _row_pieces(agent: int, rows: list[Any]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for number, row in enumerate(rows):
        one = _written(row, f"agents[{agent}].messages[{number}]")
        if waiting and (size + len(one) > PIECE_BYTES or len(waiting) == PIECE_ROWS):
            yield b"[%d,[%s]]" % (agent, b",".join(waiting))
            waiting, size = [], 0
        waiting.append(one)
        size += len(one)
    if waiting:
        yield b"[%d,[%s]]" % (agent, b",".join(waiting))


def _written(value: Any, where: str) -> bytes:
    raw = orjson.dumps(value)
    if has_more_values(raw, ENTRY_VALUES_MAX):
        raise InvalidInput(f"file.{where}", f"has more than {ENTRY_VALUES_MAX} values, which is the limit")
    if is_deeper(value, DEPTH_MAX):
        raise InvalidInput(f"file.{where}", f"is nested deeper than {DEPTH_MAX} levels")
    return raw
