"""Tables that fit a terminal. This module computes lines and prints nothing.

Ids are shortened as far as they stay distinct, and times become ages. Texts are wrapped or cut until the table fits;
where even that is too wide, columns are left out, the least important first.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import TextWrapper

from kelpie.cli.display.age import age, parsed

GAP = 2  # between two columns
CUT_MIN = 8  # width of a text that is cut
WRAP_MIN = 20  # width of a text that is wrapped
SHORT_CHARS = 8  # of the random part of an id
_ID = re.compile(r"([a-z][a-z_-]*-)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")


@dataclass(frozen=True)
class FittedTable:
    """The lines of a table, the heading first, and the names of the columns that did not fit."""

    lines: list[str]
    left_out: list[str]


@dataclass
class _Column:
    name: str
    cells: list[str]
    flexible: bool  # ids, times and numbers are never cut: half of one means something else
    width: int = 0

    @property
    def natural(self) -> int:
        return max(text_width(text) for text in (self.name, *self.cells))


def fitted(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    now: datetime,
    *,
    spare: Sequence[str] = (),
    wrap: bool = True,
) -> FittedTable:
    """Lays out rows within a width. `spare` names the columns to leave out first; without `wrap`, long texts are cut
    and a row is one line."""
    shown = [_column(name, list(cells), now) for name, *cells in zip(columns, *rows, strict=True)]
    left_out: list[str] = []
    least = WRAP_MIN if wrap else CUT_MIN
    while len(shown) > 1 and _needed(shown, least) > width:
        gone = next((each for name in spare for each in shown if each.name == name), shown[-1])
        shown.remove(gone)
        left_out.append(gone.name)
    _share(shown, width, least)
    lines = _lines([each.name.upper() for each in shown], shown, wrap=False)
    for place in range(len(rows)):
        lines += _lines([each.cells[place] for each in shown], shown, wrap=wrap)
    return FittedTable(lines, left_out)


def short_ids(texts: Sequence[str]) -> list[str]:
    """Ids by their kind and their first characters: as few as keep different ids apart. Other texts stay."""
    whole = {text for text in texts if _ID.fullmatch(text)}
    chars = SHORT_CHARS
    while len({_short(each, chars) for each in whole}) < len(whole):
        chars += 1
    return [_short(text, chars) if text in whole else text for text in texts]


def text_width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits with a mark that there is more."""
    if text_width(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _character_width(character)
        if used > width - 1:
            break
        kept += character
    return f"{kept}…"


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of a width, broken between words; a longer word is broken where it must be."""
    lines = TextWrapper(max(1, width), break_on_hyphens=False).wrap(text) or [""]
    return [part for line in lines for part in _pieces(line, max(2, width))]


def _pieces(line: str, width: int) -> list[str]:
    """A line of wide characters, which take more columns than TextWrapper counts, in parts that fit."""
    parts, used = [""], 0
    for character in line:
        taken = _character_width(character)
        if used + taken > width:
            parts.append("")
            used = 0
        parts[-1] += character
        used += taken
    return parts


def _column(name: str, cells: list[str], now: datetime) -> _Column:
    told = [text for text in cells if text != "-"]
    if told and all(_ID.fullmatch(text) for text in told):
        return _Column(name, short_ids(cells), flexible=False)
    if told and all(parsed(text) for text in told):
        return _Column(name, [age(at, now) if (at := parsed(text)) else text for text in cells], flexible=False)
    numbers = all(not text.strip("-$.0123456789%") for text in told)
    return _Column(name, cells, flexible=not numbers)


def _needed(columns: Sequence[_Column], least: int) -> int:
    """The width of a table whose flexible columns are as narrow as they may be."""
    return sum(_least(each, least) for each in columns) + GAP * (len(columns) - 1)


def _least(column: _Column, least: int) -> int:
    return min(column.natural, max(least, text_width(column.name))) if column.flexible else column.natural


def _share(columns: Sequence[_Column], width: int, least: int) -> None:
    """Sets the widths: each column gets its least, then those that need more share the rest evenly."""
    for each in columns:
        each.width = min(_least(each, least), width)
    rest = width - sum(each.width for each in columns) - GAP * (len(columns) - 1)
    while rest > 0 and (short := [each for each in columns if each.width < each.natural]):
        for each in short:
            more = min(max(1, rest // len(short)), each.natural - each.width, rest)
            each.width += more
            rest -= more


def _lines(texts: Sequence[str], columns: Sequence[_Column], *, wrap: bool) -> list[str]:
    cells = [
        wrapped(text, each.width) if wrap and each.flexible else [cut(text, each.width)]
        for text, each in zip(texts, columns, strict=True)
    ]
    lines: list[str] = []
    for place in range(max(len(cell) for cell in cells)):
        parts = [
            _padded(cell[place] if place < len(cell) else "", each.width)
            for cell, each in zip(cells, columns, strict=True)
        ]
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def _short(text: str, chars: int) -> str:
    found = _ID.fullmatch(text)
    return text if found is None else found[1] + found[2][:chars].rstrip("-")


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
