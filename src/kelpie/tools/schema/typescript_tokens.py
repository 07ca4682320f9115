"""Tokens of TypeScript source, as far as reading a signature needs them. Every character is read once."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_PLAIN = re.compile(r"(?P<word>[A-Za-z_$][\w$]*)|(?P<number>[0-9][\w.]*)|(?P<sign>=>|\.\.\.|.)", re.DOTALL)
_SPACE = re.compile(r"\s*")


class Token(NamedTuple):
    """`kind` is word, number, text, doc or sign; a text is without its quotes, a doc without its frame."""

    kind: str
    value: str


def tokens(code: str) -> Iterator[Token]:
    """The tokens of the source. Comments are left out, except those that begin with `/**`."""
    place = _skip(code, 0)
    while place < len(code):
        letter = code[place]
        if letter in "'\"`":
            text, place = _text(code, place)
            yield Token("text", text)
        elif letter == "/" and code.startswith(("//", "/*"), place):
            text, place = _comment(code, place)
            if text.startswith("/**"):
                yield Token("doc", text[3:])
        else:
            found = _PLAIN.match(code, place)
            assert found is not None and found.lastgroup is not None, "one of them fits any character"
            yield Token(found.lastgroup, found[0])
            place = found.end()
        place = _skip(code, place)


def _skip(code: str, place: int) -> int:
    found = _SPACE.match(code, place)
    return found.end() if found else place


def _comment(code: str, start: int) -> tuple[str, int]:
    """The comment that begins here, without its end, and the position after it."""
    close = "\n" if code[start + 1] == "/" else "*/"
    end = code.find(close, start + 2)
    end = len(code) if end < 0 else end
    return code[start:end], end + len(close)


def _text(code: str, start: int) -> tuple[str, int]:
    """The text that begins here and the position after it; an unclosed one ends with its line or the source."""
    quote, place = code[start], start + 1
    parts: list[str] = []
    while place < len(code) and code[place] != quote:
        if code[place] == "\n" and quote != "`":
            return "".join(parts), place
        if code[place] == "\\" and place + 1 < len(code):
            place += 1
        parts.append(code[place])
        place += 1
    return "".join(parts), place + 1
