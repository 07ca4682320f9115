"""Parser of server-sent events from another server: whole events from pieces cut anywhere.

Plain code over one piece at a time: a stream of tokens is many small events, and an await for each line of each of them
would cost more than all other work on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

_RETRY_MS_MAX = 3_600_000
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """`name` is empty for the usual unnamed event; `id` is that of the last event that had one."""

    name: str
    data: str
    id: str = field(default="", compare=False)


class EventReader:
    """Buffers an incomplete event; one that never completes is dropped."""

    def __init__(self) -> None:
        self._left: list[bytes] = []  # of a line
        self._after_cr = False  # so a line feed that comes next ends no other line
        self._begun = False
        self._name = ""
        self._data: list[str] = []
        self.last_id = ""
        self.retry_ms: int | None = None  # how long the server asks to wait before connecting again

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that this piece completes."""
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data or self._name:
                event = ServerEvent(self._name, "\n".join(self._data), self.last_id)
                self._name, self._data = "", []
                yield event

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_cr:
            piece, self._after_cr = piece.removeprefix(b"\n"), not piece
        self._left.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        text = b"".join(self._left)
        if not self._begun:
            text, self._begun = text.removeprefix(_BOM), True
        self._after_cr = text.endswith(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, left = text.split(b"\n")
        self._left = [left]
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode(errors="replace"))
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.removeprefix(b" ").decode(errors="replace")
        elif name == b"retry" and value.strip().isdigit():
            self.retry_ms = min(int(value), _RETRY_MS_MAX)
