"""Lines of a file's text: how they are counted, and how a part of them is shown to an agent. Pure.

Blank lines are not counted, as in Letta, and spaces at the end of a line are left out. A passage may begin in the
middle of a line that is longer than a passage.
"""

from kelpie.core.files.files import FilePassage

CUT = "...[TRUNCATED]\n# NOTE: Only a part of this file is shown. Use the file tools to see the rest."


def lines_in(text: str) -> int:
    """Number of lines that count."""
    return sum(1 for line in text.split("\n") if line.strip())


def numbered(first: int, lines: list[str]) -> list[str]:
    """The lines with their numbers, the first of which is given."""
    return [f"{number}: {line}" for number, line in enumerate(lines, first)]


class LineReader:
    """Collects the lines from one to another, both included, until so many characters are there."""

    def __init__(self, first: int, last: int | None, chars_max: int) -> None:
        self._first = first
        self._last = last
        self._chars_max = chars_max
        self._number: int | None = None  # of the first line of the text
        self._text = ""

    def take(self, passage: FilePassage) -> None:
        """Adds the next passage; the first one must be that in which the first line begins."""
        text = passage.text
        if self._number is None:
            self._number = passage.line
            if passage.mid_line:  # the end of a line that is not wanted
                text = text.partition("\n")[2]
        self._text += text

    @property
    def done(self) -> bool:
        """True if nothing that follows would be shown."""
        if len(self._text) > self._chars_max + self._skipped:
            return True
        return self._last is not None and (self._number or 1) + lines_in(self._text) - 1 > self._last

    @property
    def _skipped(self) -> int:
        """Characters of lines before the first one that is wanted; at most those of a passage."""
        return sum(len(line) + 1 for line in self._text.split("\n")[: self._first]) if self._first > 1 else 0

    def shown(self, total: int, *, ranged: bool) -> str:
        """The lines with their numbers, below a line that says which these are."""
        counted = [line.rstrip() for line in self._text.split("\n") if line.strip()]
        start = max(0, self._first - (self._number or 1))
        end = None if self._last is None else max(0, self._last - (self._number or 1) + 1)
        lines = counted[start:end]
        head = f"[Viewing file start (out of {total} lines)]"
        if ranged:
            last = min(self._last or total, total)
            head = f"[Viewing lines {self._first} to {last} (out of {total} lines)]"
        return cut("\n".join([head, *numbered(self._first, lines)]), self._chars_max)


def cut(text: str, chars_max: int) -> str:
    """The text, or its beginning with a note that there is more."""
    return text if len(text) <= chars_max else text[: max(0, chars_max - len(CUT))] + CUT
