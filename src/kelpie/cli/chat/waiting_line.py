"""The line that shows that the agent is at work: drawn while nothing arrives, and gone when something does."""

from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from kelpie.cli.display.style import Style, movable
from kelpie.world.clock import SystemClock
from kelpie.world.terminal import every

T = TypeVar("T")

EVERY_S = 0.12
_ERASE = "\r\x1b[2K"
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


class WaitingLine:
    """A spinner with the seconds on a terminal; one line where the cursor cannot move; nothing in a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._movable = movable(stream)
        self._style = Style(stream)
        self._frames = _FRAMES if (stream.encoding or "").lower().startswith("utf") else _PLAIN_FRAMES
        self._clock = SystemClock()
        self._since = 0
        self._drawn = 0
        self.what = "thinking"
        self.quiet = False  # while an unfinished line of the answer is on the screen

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; the line is shown while the next one does not come."""
        iterator = iter(items)
        self._since, self._drawn = self._clock.monotonic_ns(), 0
        while True:
            try:
                if self._terminal:
                    with every(EVERY_S, self._draw):
                        item = next(iterator)
                else:
                    item = next(iterator)
            except StopIteration:
                return
            finally:
                self._erase()
            yield item

    def _draw(self) -> None:
        """Writes the line anew. Runs between two reads of the stream, never while something else is written."""
        if self.quiet or (self._drawn and not self._movable):
            return
        self._drawn += 1
        if not self._movable:
            self._stream.write(f"{self.what}...\n")
        else:
            seconds = (self._clock.monotonic_ns() - self._since) // 1_000_000_000
            frame = self._frames[self._drawn % len(self._frames)]
            text = f"{frame} {self.what}… {seconds}s (Ctrl-C cancels)"
            self._stream.write(_ERASE + self._style("quiet", text))
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn and self._movable:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._drawn = 0
