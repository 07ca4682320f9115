"""The end of a log file, and the lines that are added to it; the file may be rotated or removed meanwhile."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

EVERY_S = 0.1
LINE_BYTES_MAX = 1024 * 1024
_BLOCK = 65_536


class LogTail:
    """Reads one log from its end. It gives every added line exactly once."""

    def __init__(self, path: Path) -> None:
        """Waits for a file that does not exist yet. Raises OSError when it cannot be read."""
        self._path = path
        self._file = self._open()
        self._end = 0

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def last(self, count: int, wanted: Callable[[str], bool] | None = None) -> list[str]:
        """The last complete lines that are wanted, oldest first; `added` continues after them. Raises OSError."""
        if self._file is None:
            return []
        found: list[str] = []
        for line in self._backwards(self._file):
            if len(found) == count:
                break
            if wanted is None or wanted(line):
                found.append(line)
        self._file.seek(self._end)
        return found[::-1]

    def _backwards(self, file: BinaryIO) -> Iterator[str]:
        """The complete lines from the last to the first; sets the place after the last one."""
        position = file.seek(0, os.SEEK_END)
        self._end, rest, ended = 0, b"", False
        while position:
            step = min(_BLOCK, position)
            position = file.seek(position - step)
            block = file.read(step) + rest
            if not ended:
                last = block.rfind(b"\n")
                if last < 0:
                    rest = block
                    continue
                self._end, block, ended = position + last + 1, block[:last], True
            rest, *lines = block.split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in reversed(lines))
        if ended:
            yield rest.decode("utf-8", "replace")

    def added(self) -> Iterator[str]:
        """Lines as they are added, for ever; a new file of the same name is read from its beginning. Raises OSError."""
        rest = b""
        while True:
            line = self._file.readline(LINE_BYTES_MAX) if self._file else b""
            rest += line
            if rest.endswith(b"\n") or len(rest) >= LINE_BYTES_MAX:
                yield rest.decode("utf-8", "replace").rstrip("\n")
                rest = b""
            elif not line and not self._next_file():
                time.sleep(EVERY_S)

    def _next_file(self) -> bool:
        """Switches to the file that now has the name, if it is another."""
        if self._file is None:
            self._file = self._open()
            return self._file is not None
        try:
            now, then = self._path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False  # between the two names of a rotation
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino):
            return False
        self._file.close()
        self._file = self._open()
        return self._file is not None

    def _open(self) -> BinaryIO | None:
        try:
            return self._path.open("rb")
        except FileNotFoundError:
            return None
