"""A JSON document in a file that a person named: written as a whole or not at all, and readable by its owner only."""

import json
import os
from pathlib import Path
from typing import Any

from kelpie.core.errors import InvalidInput

BYTES_MAX = 1024**3


def write(path: Path, document: Any) -> None:
    """Replaces the file with the document. Raises InvalidInput."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:  # raised again; no half of a document stays behind
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput("FILE", f"'{path}' cannot be written: {error.strerror}") from None


def read(path: Path) -> Any:
    """The document. Raises InvalidInput."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise InvalidInput("FILE", f"'{path}' is larger than {BYTES_MAX} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("FILE", f"'{path}' cannot be read: {error.strerror}") from None
    except ValueError:
        raise InvalidInput("FILE", f"'{path}' is not valid JSON; use another copy") from None
