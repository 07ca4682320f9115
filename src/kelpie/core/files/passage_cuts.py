"""Cuts of a text into passages of bounded length: between paragraphs, lines, sentences or words, in this order. Pure.

The passages follow each other without a gap and do not overlap: a search ranks a passage with its neighbours.
"""

import re
from collections.abc import Iterator

CHARS_PER_TOKEN = 4
CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX = 16, 8_192
_BREAKS = ("\n\n", "\n", ". ", " ")
_SENTENCE = re.compile(r"[.!?]['\")\]]*\s")


def chars_max(tokens: int) -> int:
    """Characters of a passage of so many tokens, about."""
    return CHARS_PER_TOKEN * min(max(tokens, CHUNK_TOKENS_MIN), CHUNK_TOKENS_MAX)


def passages(text: str, most: int) -> Iterator[str]:
    """The passages, each of at most so many characters."""
    start = 0
    while len(text) - start > most:
        end = _end(text, start, start + most)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _end(text: str, start: int, limit: int) -> int:
    """The best place for the end of a passage: not in its first half."""
    least = (start + limit) // 2
    for mark in _BREAKS:
        if mark == ". ":
            ends = [found.end() for found in _SENTENCE.finditer(text, least, limit)]
            if ends:
                return ends[-1]
        elif (place := text.rfind(mark, least, limit)) >= 0:
            return place + len(mark)
    return limit
