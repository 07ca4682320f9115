"""The last log lines of this process, kept in memory for a person who looks at them in the dashboard.

Lines are numbered, so a reader can ask for what came after the last one it has. The oldest lines give way. The numbers
of another process are told from these by `origin`, which is made of the first line.
"""

import zlib
from collections import deque
from dataclasses import dataclass
from itertools import count

LINES_MAX = 2000
LINE_CHARS_MAX = 16_384


@dataclass(frozen=True, slots=True)
class RecentLine:
    """A line as JSON, and its number since the start of the process."""

    number: int
    level: str
    text: str


class RecentLines:
    """A bounded list of lines. Any thread may add to it: each change of the list is one operation of its own."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[RecentLine] = deque(maxlen=lines_max)
        self._numbers = count(1)
        self.origin = ""  # empty before the first line

    def add(self, level: str, text: str) -> None:
        number = next(self._numbers)
        if number == 1:
            self.origin = f"{zlib.crc32(text.encode(errors='replace')):08x}"
        self._lines.append(RecentLine(number, level, text[:LINE_CHARS_MAX]))

    @property
    def last(self) -> int:
        """The number of the newest line; 0 before the first."""
        try:
            return self._lines[-1].number
        except IndexError:
            return 0

    def after(self, number: int) -> list[RecentLine]:
        """The lines after this one that are still kept, oldest first. A number of an earlier process gets all."""
        kept = self._lines.copy()
        first = 0 if kept and number > kept[-1].number else number
        return [line for line in kept if line.number > first]
