"""Messages from typed input: one line each, or several lines.

A backslash at the end of a line continues it in the next; three quotes begin a text that ends with three quotes.
"""

from collections.abc import Callable, Iterator
from typing import TextIO

PROMPT = "you> "
GOES_ON = "...> "
QUOTES = '"""'

Read = Callable[[str], str]  # shows a prompt and gives a line; raises EOFError at the end


def messages(read: Read) -> Iterator[str]:
    """The messages until the input ends. An interrupt drops the typed text; a second one in a row ends the input."""
    interrupted = False
    while True:
        try:
            text = _whole(read(PROMPT), read).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupted:
                return
            interrupted = True
            continue
        interrupted = False
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
