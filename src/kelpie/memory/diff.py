"""The difference between two texts, line by line: as hunks, and in the unified form that people and tools read. Pure.

Lines are what stands between line breaks, so that texts which differ only by a last, empty line differ here too. The
work is bounded: a part that is too long to be compared is given as taken out and put in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

CONTEXT = 3  # lines around a change
LINES_MAX = 1_000  # on either side that are compared; beyond, the time would grow with the square

Kind = Literal["same", "removed", "added"]
_SIGNS: dict[Kind, str] = {"same": " ", "removed": "-", "added": "+"}


@dataclass(frozen=True, slots=True)
class Line:
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that changed, with some around them. Line numbers begin with 1."""

    from_line: int
    from_count: int
    to_line: int
    to_count: int
    lines: tuple[Line, ...]


def hunks(before: str, after: str) -> list[Hunk]:
    """Changed parts, from the top; none for texts that are equal."""
    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    first = max(0, head - CONTEXT)
    last = min(tail, CONTEXT)
    middle = _compared(old[head : len(old) - tail], new[head : len(new) - tail])
    lines = [
        *(Line("same", text) for text in old[first:head]),
        *middle,
        *(Line("same", text) for text in old[len(old) - tail : len(old) - tail + last]),
    ]
    return list(_grouped(lines, first))


def unified(found: Sequence[Hunk], from_name: str, to_name: str) -> str:
    """The hunks as a unified diff; empty when there are none."""
    if not found:
        return ""
    text = [f"--- {from_name}", f"+++ {to_name}"]
    for hunk in found:
        old, new = _range(hunk.from_line, hunk.from_count), _range(hunk.to_line, hunk.to_count)
        text.append(f"@@ -{old} +{new} @@")
        text += [f"{_SIGNS[line.kind]}{line.text}" for line in hunk.lines]
    return "\n".join(text) + "\n"


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Number of equal lines at the beginning."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))


def _compared(old: list[str], new: list[str]) -> Iterator[Line]:
    if max(len(old), len(new)) > LINES_MAX:
        codes = [("replace", 0, len(old), 0, len(new))]
    else:
        codes = SequenceMatcher(None, old, new, autojunk=True).get_opcodes()
    for code, old_start, old_end, new_start, new_end in codes:
        if code == "equal":
            yield from (Line("same", text) for text in old[old_start:old_end])
            continue
        yield from (Line("removed", text) for text in old[old_start:old_end])
        yield from (Line("added", text) for text in new[new_start:new_end])


def _grouped(lines: Sequence[Line], offset: int) -> Iterator[Hunk]:
    """Cuts where more lines are equal than two changes need around them."""
    changed = [place for place, line in enumerate(lines) if line.kind != "same"]
    begin = 0
    while begin < len(changed):
        end = begin
        while end + 1 < len(changed) and changed[end + 1] - changed[end] <= 2 * CONTEXT + 1:
            end += 1
        first, last = max(0, changed[begin] - CONTEXT), min(len(lines), changed[end] + CONTEXT + 1)
        yield _hunk(lines, first, last, offset)
        begin = end + 1


def _hunk(lines: Sequence[Line], first: int, last: int, offset: int) -> Hunk:
    earlier, inside = lines[:first], lines[first:last]
    old = sum(line.kind != "added" for line in inside)
    new = sum(line.kind != "removed" for line in inside)
    old_line = offset + sum(line.kind != "added" for line in earlier) + 1
    new_line = offset + sum(line.kind != "removed" for line in earlier) + 1
    return Hunk(old_line, old, new_line, new, tuple(inside))


def _range(line: int, count: int) -> str:
    """Line range in the unified form; a side without lines gets the number of the line before."""
    if count == 1:
        return str(line)
    return f"{line if count else line - 1},{count}"
