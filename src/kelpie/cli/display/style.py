"""Colors of a terminal. A pipe, a file, a dumb terminal and a person who set NO_COLOR get plain text."""

import os
from collections.abc import Mapping
from typing import TextIO

RESET = "\x1b[0m"
CODES: Mapping[str, str] = {
    "heading": "\x1b[1m",
    "you": "\x1b[1;36m",
    "agent": "\x1b[1;32m",
    "reasoning": "\x1b[2;3m",
    "tool": "\x1b[33m",
    "quiet": "\x1b[2m",
    "error": "\x1b[31m",
}


def movable(stream: TextIO) -> bool:
    """True if the stream is a terminal on which a line can be written again."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def colored(stream: TextIO) -> bool:
    """True if colors are wanted on this stream."""
    return movable(stream) and not os.environ.get("NO_COLOR")


class Style:
    """The colors of one stream; without color, texts stay as they are."""

    def __init__(self, stream: TextIO) -> None:
        self.on = colored(stream)

    def __call__(self, name: str, text: str) -> str:
        """The text in the color of a role."""
        return f"{self.start(name)}{text}{self.end}" if text else text

    def start(self, name: str) -> str:
        """What begins the color of a role; `end` ends it."""
        return CODES[name] if self.on else ""

    @property
    def end(self) -> str:
        return RESET if self.on else ""
