"""Patches of memory blocks: parsing what a model wrote, and applying hunks to a text. Pure; raises ToolError.

A patch is either hunks for the one block that was named with it, or sections under `*** Add Block:`,
`*** Update Block:` and `*** Delete Block:`. Line numbers after `@@` only help to choose between equal places, because
models count badly; the lines themselves must match.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from kelpie.core.errors import ToolError
from kelpie.memory.text_edits import plain

_SECTION = re.compile(r"^\*\*\* (Add|Update|Delete) Block:\s*(.*?)\s*$")
_MOVE = re.compile(r"^\*\*\* Move to:\s*(.*?)\s*$")
_WRAPPER = re.compile(r"^\*\*\* (Begin|End) Patch\s*$")
_DESCRIPTION = re.compile(r"^Description:\s*(.*?)\s*$")
_HUNK = re.compile(r"^@@(?: -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@)?")
_LINES_MAX = 20_000
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines to find and lines to put in their place. `at` is the index the patch claims for them, if it claims one."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    label: str
    value: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    label: str


@dataclass(frozen=True, slots=True)
class Update:
    label: str
    hunks: tuple[Hunk, ...] = ()
    new_label: str | None = None
    description: str | None = None


Change = Add | Delete | Update


def parse(patch: str, label: str) -> list[Change]:
    """The changes a patch asks for; `label` is the block that hunks without a header are for."""
    lines = [line for line in patch.replace("\r\n", "\n").split("\n") if not _WRAPPER.match(line)]
    if len(lines) > _LINES_MAX:
        raise ToolError(f"The patch has {len(lines)} lines; the limit is {_LINES_MAX}.")
    starts = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    if not starts:
        hunks = _hunks(lines)
        if not hunks:
            raise ToolError("The patch contains no changes. Give lines that start with '-' or '+'.")
        return [Update(label, hunks)]
    if any(line.strip() for line in lines[: starts[0]]):
        raise ToolError(f"The patch has text before its first header: '{_shown(lines[0])}'. Remove it.")
    return [_section(lines[start:end]) for start, end in pairwise([*starts, len(lines)])]


def _section(lines: list[str]) -> Change:
    header = _SECTION.match(lines[0])
    assert header is not None
    kind, label = header.groups()
    if not label:
        raise ToolError(f"'{lines[0]}' has no block label. Write the label after the colon.")
    if kind == "Delete":
        if any(line.strip() for line in lines[1:]):
            raise ToolError(f"The section that deletes '{label}' contains other lines. Remove them.")
        return Delete(label)
    new_label, description, body = _preamble(lines[1:])
    if kind == "Update":
        hunks = _hunks(body)
        if not hunks and new_label is None and description is None:
            raise ToolError(f"The section that updates '{label}' contains no changes.")
        return Update(label, hunks, new_label, description)
    if new_label is not None:
        raise ToolError(f"'{label}' is a new block and cannot be renamed. Add it under its final label.")
    return Add(label, "\n".join(_added(body, label)), description)


def _preamble(lines: list[str]) -> tuple[str | None, str | None, list[str]]:
    """The new label and the description that may stand before the hunks, and what follows them."""
    new_label, description = None, None
    for number, line in enumerate(lines):
        if move := _MOVE.match(line):
            new_label = move.group(1) or None
        elif described := _DESCRIPTION.match(line):
            description = described.group(1)
        else:
            return new_label, description, lines[number:]
    return new_label, description, []


def _added(lines: list[str], label: str) -> list[str]:
    """The text of a new block: lines with a '+' before them."""
    body = _without_blank_end(lines)
    if body and _HUNK.match(body[0]):
        body = body[1:]
    for line in body:
        if line and not line.startswith("+"):
            raise ToolError(f"Every line of the new block '{label}' must start with '+'; this one does not: {line!r}.")
    return [plain(line[1:], "patch") for line in body]


def _hunks(lines: list[str]) -> tuple[Hunk, ...]:
    body = _without_blank_end(lines)
    if len(body) > 2 and (body[0][:4], body[1][:4], body[2][:2]) == ("--- ", "+++ ", "@@"):
        body = body[2:]  # the names of the two texts
    heads = [number for number, line in enumerate(body) if _HUNK.match(line)]
    found = _hunk(body[: heads[0]] if heads else body, None)
    for start, end in pairwise([*heads, len(body)]):
        found += _hunk(body[start + 1 : end], _claimed(body[start]))
    return found


def _claimed(header: str) -> int | None:
    match = _HUNK.match(header)
    if match is None or match.group(1) is None:
        return None
    number, count = int(match.group(1)), match.group(2)
    return number if count == "0" else number - 1  # an empty range names the line before it


def _hunk(lines: list[str], at: int | None) -> tuple[Hunk, ...]:
    old: list[str] = []
    new: list[str] = []
    for line in lines:
        sign, text = line[:1] or " ", plain(line[1:], "patch")  # models drop the space of an empty context line
        if sign == "\\":
            continue  # the remark about a missing line break at the end
        if sign not in " +-":
            raise ToolError(f"A line of a patch must start with ' ', '-' or '+'; this one does not: '{_shown(line)}'.")
        if sign != "+":
            old.append(text)
        if sign != "-":
            new.append(text)
    return (Hunk(tuple(old), tuple(new), at),) if old != new else ()


def _without_blank_end(lines: list[str]) -> list[str]:
    """Without the empty lines that only end the text of the patch."""
    end = len(lines)
    while end and not lines[end - 1]:
        end -= 1
    return lines[:end]


def apply(value: str, hunks: tuple[Hunk, ...]) -> str:
    """The value with every hunk applied, in order. Raises ToolError when one has no place or no clear place."""
    lines = value.split("\n") if value else []
    shift, past = 0, 0  # how far earlier hunks moved later lines, and where the last one ended
    for number, hunk in enumerate(hunks, start=1):
        at = _place(lines, hunk, shift, past, number)
        lines[at : at + len(hunk.old)] = hunk.new
        shift += len(hunk.new) - len(hunk.old)
        past = at + len(hunk.new)
    return "\n".join(lines)


def _place(lines: list[str], hunk: Hunk, shift: int, past: int, number: int) -> int:
    claimed = None if hunk.at is None else hunk.at + shift
    if not hunk.old:
        return len(lines) if claimed is None else min(max(claimed, past), len(lines))
    size = len(hunk.old)
    first = hunk.old[0]
    places = [
        at for at in range(len(lines) - size + 1) if lines[at] == first and tuple(lines[at : at + size]) == hunk.old
    ]
    later = [at for at in places if at >= past]
    if len(places) == 1:
        return places[0]
    if claimed in later:
        return claimed
    if len(later) == 1:
        return later[0]
    if not places:
        raise ToolError(f"Hunk {number} does not match the block. {_missing(lines, hunk)}")
    raise ToolError(
        f"Hunk {number} matches {len(places)} places in the block. Add surrounding lines so that it matches only one."
    )


def _missing(lines: list[str], hunk: Hunk) -> str:
    known = set(lines)
    unknown = next((line for line in hunk.old if line not in known), None)
    if unknown is None:
        return "Its lines are in the block, but not together in this order."
    return f"This line is not in the block: '{_shown(unknown)}'."


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
