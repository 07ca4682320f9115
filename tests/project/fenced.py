"""Finds the fenced blocks of a page: what language, what text, and whether the page says that it cannot be run."""

import re
from dataclasses import dataclass
from pathlib import Path

RUNNABLE = ("sh", "python")
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order."""
    source = page.read_text()
    return [
        Block(page, source.count("\n", 0, found.start()) + 1, found["language"], found["text"], found["reason"])
        for found in _BLOCK.finditer(source)
    ]
