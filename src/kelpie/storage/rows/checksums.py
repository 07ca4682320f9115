"""Checksums of rows that are told as truth: what a disk has changed behind our back is reported and never shown.

SQLite checks the form of its pages and not what is in them. A row that does not match its checksum is *lost*: it keeps
its place and its id, and what it said is replaced by a sentence that says so.
"""

from typing import Any
from zlib import crc32

import orjson
from sqlalchemy import JSON
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from kelpie.observe import logs

_log = logs.get("storage")


def checksum(*values: Any) -> int:
    """Of what a row says, whatever its columns are."""
    return crc32(orjson.dumps(values))


def report(what: str, key: str) -> None:
    """Puts into the log that a row is damaged."""
    _log.error(
        "row_damaged",
        "Stored row is damaged and is not returned; restore it from a backup or delete it",
        what=what,
        id=key,
    )


class ChecksummedJson(TypeDecorator[Any]):
    """JSON of a row that has a checksum: what is no JSON any more is None, for the checksum to find out."""

    impl = JSON
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        decode = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return value if decode is None else decode(value)
            except ValueError:
                return None

        return process
