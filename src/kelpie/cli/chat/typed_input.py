"""Messages from typed input: one line each, or several lines.

A backslash at the end of a line continues it in the next; three quotes begin a text that ends with three quotes.
"""

from collections.abc import Callable, Iterator
from typing import TextIO

PROMPT = "you> "
GOES_ON = "...> "
QUOTES = '"""'

Read = Callable[[str], str]  # shows a prompt and gives a line; raises EOFError at the end


class TypedInput:
    """The messages that are typed until the input ends. An interrupt drops the typed text; a second one in a row, also
    after an interrupted answer, ends the input."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.interrupted = False  # whether the last thing that happened was an interrupt

    def messages(self) -> Iterator[str]:
        """The messages, without those that are empty."""
        while True:
            try:
                text = _whole(self._read(PROMPT), self._read).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                if self.interrupted:
                    return
                self.interrupted = True
                continue
            self.interrupted = False
            if text:
                yield text


def from_stream(stream: TextIO) -> Read:
    """Lines of a pipe or a file, without a prompt."""

    def read(_: str) -> str:
        line = stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read


def _whole(line: str, read: Read) -> str:
    opened = line.strip().startswith(QUOTES)
    lines = [line.strip().removeprefix(QUOTES) if opened else line]
    try:
        while opened and QUOTES not in lines[-1]:
            lines.append(read(GOES_ON))
        while not opened and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(read(GOES_ON))
    except EOFError:
        pass  # what there is, is the message
    if opened:
        lines[-1] = lines[-1].partition(QUOTES)[0]
    return "\n".join(lines)
