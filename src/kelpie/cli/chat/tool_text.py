"""Tool calls and their results as lines for people: the arguments one per line, wrapped and bounded."""

import json
from typing import Any

from kelpie.cli.display.table import wrapped
from kelpie.core.printable_text import on_one_line

ARGUMENTS_MAX = 20
VALUE_LINES_MAX = 6
RESULT_LINES_MAX = 12
VALUE_CHARS_MAX = 2000
INDENT = "  "


def call_lines(name: str, arguments: str, width: int) -> list[str]:
    """The name of the tool, then its arguments. Arguments that are no JSON object are shown as they are."""
    given = parsed_arguments(arguments)
    head = [on_one_line(name)]
    if given is None:
        return head + _indented("", arguments, width, VALUE_LINES_MAX)
    lines = head
    for key, value in list(given.items())[:ARGUMENTS_MAX]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += _indented(f"{on_one_line(key)}: ", text, width, VALUE_LINES_MAX)
    if len(given) > ARGUMENTS_MAX:
        lines.append(f"{INDENT}and {len(given) - ARGUMENTS_MAX} more arguments")
    return lines


def result_lines(text: str, width: int) -> list[str]:
    """The beginning of a result."""
    return bounded_lines(text, width, RESULT_LINES_MAX)


def parsed_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call; None while they are incomplete, and for those that are no JSON object."""
    if not text.rstrip().endswith("}"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def bounded_lines(text: str, width: int, lines_max: int) -> list[str]:
    """The first lines of a text, wrapped; the last one says when there is more."""
    shown = text[:VALUE_CHARS_MAX]
    lines = [line for part in shown.splitlines() or [""] for line in wrapped(on_one_line(part.expandtabs()), width)]
    if len(lines) > lines_max or len(text) > VALUE_CHARS_MAX:
        lines = [*lines[:lines_max], f"… ({len(text)} characters in all)"]
    return lines


def _indented(label: str, text: str, width: int, lines_max: int) -> list[str]:
    """A labelled value whose further lines stand under the first."""
    first = INDENT + label
    room = max(20, width - len(INDENT) * 2)
    lines = bounded_lines(text, max(20, room - len(label)), lines_max)
    return [first + lines[0], *(INDENT * 2 + line for line in lines[1:])]
