"""A checkpoint: the whole memory of one agent as one JSON document with a format name and a checksum.

The checksum covers the content and not the bytes, so a client may parse and rewrite the document. It detects accidents,
not attacks: the reader of a checkpoint must check every value in it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import orjson

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros

FORMAT = "kelpie-memory-checkpoint"
VERSION = 1
FIELD = "checkpoint"

_LEVELS = 4  # down to the rows of the archive

Memory = dict[str, Any]  # section -> what it holds


@dataclass(frozen=True, slots=True)
class UnchangedItem:
    """An item that a restore did not change, because other agents use it too."""

    kind: str  # block or archive
    id: str
    name: str
    agents: int  # number of other agents


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Counts of restored items, and the items that were left unchanged."""

    blocks: int = 0
    entries: int = 0
    lapsed: int = 0  # entries of working memory that were over by then
    passages: int = 0
    messages: int = 0
    conversations: int = 0
    facts: int = 0
    left: tuple[UnchangedItem, ...] = ()


def seal(agent_id: AgentId, name: str, taken_at: Micros, memory: Memory) -> bytes:
    """The document with its format name and checksum."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "agent_id": agent_id,
        "agent_name": name,
        "taken_at": taken_at,
        "memory": memory,
    }
    return b"".join(_written({**document, "checksum": _checksum(document)}, _LEVELS))


def opened(raw: bytes) -> dict[str, Any]:
    """The document without its checksum. Raises InvalidInput naming the fault of the document."""
    try:
        parsed: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(
            FIELD, f"is not valid JSON ({error}); send the document exactly as you received it"
        ) from None
    if not isinstance(parsed, dict) or cast("dict[str, Any]", parsed).get("format") != FORMAT:
        raise InvalidInput(FIELD, f"is not a checkpoint: its 'format' is not '{FORMAT}'")
    document = cast("dict[str, Any]", parsed)
    if document.get("version") != VERSION:
        told = f"has version {str(document.get('version'))[:20]}, but this server reads version {VERSION}"
        raise InvalidInput(FIELD, told)
    try:
        matches = document.pop("checksum", None) == _checksum(document)
    except orjson.JSONEncodeError:
        raise InvalidInput(FIELD, "is nested too deeply to be written back") from None
    if not matches:
        raise InvalidInput(FIELD, "does not match its checksum, so it was changed or truncated; use another copy")
    return document


def sections(document: dict[str, Any], agent_id: AgentId) -> Memory:
    """The sections of a document for this agent, not checked yet. Raises InvalidInput."""
    if document.get("agent_id") != agent_id:
        told = f"belongs to another agent, {str(document.get('agent_id'))[:60]}; restore it there"
        raise InvalidInput(FIELD, told)
    if not isinstance(document.get("memory"), dict):
        raise InvalidInput("memory", "must be an object")
    return cast("Memory", document["memory"])


def _checksum(document: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for piece in _written(document, _LEVELS, orjson.OPT_SORT_KEYS):
        found.update(piece)
    return f"sha256:{found.hexdigest()}"


def _written(value: Any, levels: int, option: int = 0) -> Iterator[bytes]:
    """The JSON of a document in pieces, the same bytes as in one: a whole one would keep other threads waiting."""
    if not levels or not isinstance(value, dict | list) or not value:
        yield orjson.dumps(value, option=option)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield b"," if number else b"["
            yield from _written(item, levels - 1, option)
        yield b"]"
    else:
        members = cast("dict[str, Any]", value)
        for number, name in enumerate(sorted(members) if option else members):
            yield (b"," if number else b"{") + orjson.dumps(name) + b":"
            yield from _written(members[name], levels - 1, option)
        yield b"}"
