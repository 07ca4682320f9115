"""Texts in files that a person named, and drafts that could not be stored: bounded, and replaced only as a whole."""

import errno
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kelpie.core.errors import InvalidInput

BYTES_MAX = 16 * 1024 * 1024
OWNER_ONLY = 0o600


def read(path: Path, field: str = "FILE") -> str:
    """The text of a file. Raises InvalidInput naming the field."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise InvalidInput(field, f"'{path}' is larger than {BYTES_MAX} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(field, f"'{path}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(field, f"'{path}' is not UTF-8 text; save it as UTF-8") from None


def read_if_there(path: Path, field: str = "FILE") -> str | None:
    """The text of a file, or None without one. Raises InvalidInput naming the field."""
    return read(path, field) if path.exists() else None


def replace(path: Path, text: str) -> None:
    """Replaces the text of a file, or creates it for its owner only; a link keeps pointing to it. Raises
    InvalidInput."""
    target = path.resolve()
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else OWNER_ONLY
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(target, mode) as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput("FILE", f"'{path}' cannot be written: {error.strerror}") from None


@contextmanager
def replacing(path: Path, mode: int = OWNER_ONLY) -> Generator[TextIO]:
    """A file to write that takes the place of another one as a whole; after an error nothing of it stays behind.

    Raises OSError.
    """
    if not path.name:  # of the current or the root directory
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        beside.replace(path)
    except BaseException:  # raised again
        beside.unlink(missing_ok=True)
        raise


def new_draft(text: str, suffix: str) -> Path:
    """A new file with this text that only its owner can read. Raises InvalidInput."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="kelpie-", suffix=suffix)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return Path(name)
    except OSError as error:
        raise InvalidInput("EDITOR", f"a temporary file cannot be written: {error.strerror}") from None
