"""A JSON document in a file that a person named: written as a whole or not at all, and readable by its owner only."""

import json
from pathlib import Path
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.world.files.text_file import replacing

BYTES_MAX = 1024**3


def write(path: Path, document: Any) -> None:
    """Replaces the file with the document. Raises InvalidInput."""
    try:
        with replacing(path) as file:
            json.dump(document, file)
    except OSError as error:
        raise InvalidInput("FILE", f"'{path}' cannot be written: {error.strerror}") from None


def raw(path: Path) -> bytes:
    """The bytes of the file, which may be compressed. Raises InvalidInput."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise InvalidInput("FILE", f"'{path}' is larger than {BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput("FILE", f"'{path}' cannot be read: {error.strerror}") from None


def read(path: Path) -> Any:
    """The document. Raises InvalidInput."""
    try:
        return json.loads(raw(path).decode())
    except ValueError:
        raise InvalidInput("FILE", f"'{path}' is not valid JSON; use another copy") from None
