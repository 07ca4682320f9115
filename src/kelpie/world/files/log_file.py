"""A log file that never exceeds its size limit: when full it becomes `.1`, `.1` becomes `.2`, and the last is
dropped.
"""

import os
import threading
from pathlib import Path
from typing import TextIO

BYTES_MAX = 10 * 1024 * 1024
FILES_MAX = 5


class RotatedFile:
    """A sink for `observe.logs`. Any thread may write; a line is never split between two files."""

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
        """Opens the file for appending, readable by its owner only. Raises OSError."""
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._lock = threading.Lock()
        self._file = self._open()
        self._bytes = path.stat().st_size

    def write(self, text: str) -> None:
        """Appends the text, starting a new file first if it would not fit. Raises OSError."""
        size = len(text.encode("utf-8", "backslashreplace"))
        with self._lock:
            if self._bytes and self._bytes + size > self._bytes_max:
                self._rotate()
            self._file.write(text)
            self._bytes += size

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        try:
            for number in range(self._files_max - 1, 0, -1):
                older = self._numbered(number)
                newer = self._numbered(number - 1) if number > 1 else self._path
                if newer.exists():
                    newer.replace(older)
            if self._files_max == 1:
                self._path.unlink(missing_ok=True)
        finally:
            self._file = self._open()
            self._bytes = self._path.stat().st_size

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> TextIO:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
