"""Texts that most agents share, such as the default instructions: stored once, in this package, and not in each row.

A text or a JSON value that contains some of them is stored in SQLite as a blob: its number of bytes, a colon, and the
text with a short mark in the place of each. Other texts are stored as they are, and PostgreSQL, which compresses long
values itself, stores all of them so. The lists of `standard_texts.json` may only grow at their ends: databases refer to
entries by their position.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import JSON, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from kelpie.core.errors import Damaged
from kelpie.storage.rows.checksums import ChecksummedJson
from kelpie.world.files.package_files import read_package_file

_LISTS: dict[str, list[str]] = orjson.loads(read_package_file("kelpie.storage.rows", "standard_texts.json"))
_MARK = "\x01"  # stands before the character of an entry; valid JSON does not contain it
_FIRST, _FIRST_JSON = 0x30, 0x61  # characters of the first text, and of the first piece of JSON
_ENTRY = re.compile(f"{_MARK}(.)", re.DOTALL)
_SAVED_MIN = 40  # bytes; less is not worth it
_REPEATED_MAX = 32  # texts that are stored again and again, with the row of each new agent
_REPEATED_CHARS_MAX = 4_000
_PLAIN = {chr(_FIRST + number): text for number, text in enumerate(_LISTS["texts"])}
_ESCAPED = {  # as they stand in JSON
    **{mark: orjson.dumps(text)[1:-1].decode() for mark, text in _PLAIN.items()},
    **{chr(_FIRST_JSON + number): piece for number, piece in enumerate(_LISTS["json"])},
}


def packed(text: str, standard: Mapping[str, str] = _PLAIN) -> str | bytes:
    """The text with marks, or the text itself where that saves little."""
    if len(text) < _SAVED_MIN or _MARK in text:
        return text
    short = text
    for mark, entry in standard.items():
        if entry in short:
            short = short.replace(entry, _MARK + mark)
    if len(text) - len(short) < _SAVED_MIN:
        return text
    return b"%d:%b" % (len(text.encode()), short.encode())


@lru_cache(maxsize=_REPEATED_MAX)
def _packed_json(text: str) -> str | bytes:
    return packed(text, _ESCAPED)


@lru_cache(maxsize=_REPEATED_MAX)
def _packed_text(text: str) -> str | bytes:
    return packed(text)


def unpacked(stored: str | bytes, standard: Mapping[str, str] = _PLAIN) -> str:
    """The text of a stored value. Raises ValueError for a damaged one."""
    if isinstance(stored, str):
        return stored
    size, _, short = stored.partition(b":")
    try:
        text = _ENTRY.sub(lambda found: standard[found[1]], short.decode())
    except KeyError:
        raise ValueError("a mark that stands for no text") from None
    if int(size) != len(text.encode()):
        raise ValueError("another length than it was stored with")
    return text


def _any_packed(text: str) -> str | bytes:
    return _packed_text(text) if len(text) <= _REPEATED_CHARS_MAX else packed(text)


class PackedText(TypeDecorator[str]):
    """A text that is often a standard one, or begins with one."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else _any_packed(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else unpacked(value)
        except ValueError:
            raise Damaged("A text", "of an agent") from None


class PackedJson(TypeDecorator[Any]):
    """JSON that often contains standard texts."""

    impl = JSON
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _packing(super().bind_processor(dialect), dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        decode = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return _decoded(decode, value)
            except ValueError:
                raise Damaged("A setting", "of an agent") from None

        return process


class PackedChecksummedJson(ChecksummedJson):
    """The same for a row that has a checksum, which tells what is damaged."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _packing(super().bind_processor(dialect), dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        decode = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return _decoded(decode, value)
            except ValueError:
                return None

        return process


class SystemContent(list[Any]):
    """Content of a system message. That of others is not packed: statements look into it."""

    __slots__ = ()


class MessageContent(PackedChecksummedJson):
    """Content of a message; packed if it is a `SystemContent`."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        packing, plain = super().bind_processor(dialect), ChecksummedJson.bind_processor(self, dialect)
        assert packing is not None and plain is not None

        def process(value: Any) -> Any:
            return packing(value) if isinstance(value, SystemContent) else plain(value)

        return process


def _packing(encode: Any, dialect: Dialect) -> Any:
    if dialect.name != "sqlite":
        return encode

    def process(value: Any) -> Any:
        text = encode(value)
        if isinstance(text, str) and (isinstance(value, SystemContent) or len(text) > _REPEATED_CHARS_MAX):
            return packed(text, _ESCAPED)  # of one agent only
        return _packed_json(text) if isinstance(text, str) else text

    return process


def _decoded(decode: Any, value: Any) -> Any:
    """Raises ValueError for a damaged value."""
    return decode(unpacked(value, _ESCAPED) if isinstance(value, bytes) else value)
