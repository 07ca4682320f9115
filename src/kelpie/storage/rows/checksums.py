"""Checksums of rows that clients see: a change by the disk is reported, and the changed value is never shown.

SQLite checks the form of its pages and not their content. A row that does not match its checksum is *lost*: it keeps
its position and its id, and its content is replaced by a sentence that says so.
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
    """Checksum of a row's content, whatever its columns are."""
    return checksum_and_size(*values)[0]


def checksum_and_size(*values: Any) -> tuple[int, int]:
    """The checksum, and the size of the content in bytes as JSON."""
    encoded = orjson.dumps(values)
    return crc32(encoded), len(encoded)


def report(what: str, key: str) -> None:
    """Logs that a row is damaged."""
    _log.error(
        "row_damaged",
        "Stored row is damaged and is not returned; restore it from a backup or delete it",
        what=what,
        id=key,
    )


class ChecksummedJson(TypeDecorator[Any]):
    """JSON of a row that has a checksum: invalid JSON becomes None, so that the checksum does not match."""

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
