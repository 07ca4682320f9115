"""Output of commands: JSON on request, a table on a terminal, plain aligned lines everywhere else.

Control characters in names and texts never reach the terminal. The terminal library is loaded late.
"""

import json
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

CELL_CHARS_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def print_json(value: Any) -> None:
    """Prints a value as JSON, for a program to read."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str = "") -> None:
    """Prints rows under their headings; `nothing` is printed when there are none."""
    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        print(nothing, file=sys.stderr)
    elif not (sys.stdout.isatty() and _print_table(columns, cells)):
        _print_plain(columns, cells)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Prints names and values, one a line; empty ones are left out."""
    shown = {name: cell(value) for name, value in facts.items() if value not in (None, "", [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        print(f"{name:<{width}}  {value}")


def print_text(text: str) -> None:
    """Prints a text of several lines, without control characters that would move or colour a terminal."""
    for line in text.removesuffix("\n").split("\n"):
        print(_CONTROL.sub(" ", line.expandtabs()))


@contextmanager
def waiting(what: str) -> Generator[None]:
    """Shows a spinner on a terminal; prints nothing anywhere else."""
    if not sys.stderr.isatty():
        yield
        return
    from kelpie.cli.terminal import spinner

    with spinner(what):
        yield


@contextmanager
def counted(what: str, total: int) -> Generator[Callable[[], None]]:
    """A progress bar on a terminal, advanced by calling the result; nothing elsewhere. Printed lines stay readable."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from kelpie.cli.terminal import bar

    # Only output to the same terminal must be kept apart from the bar; a pipe gets its lines as they are.
    with bar(what, total, together=sys.stdout.isatty()) as move:
        yield move


def cell(value: Any) -> str:
    """A value on one line, cut if it is long."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(str(item) for item in value)
    text = _CONTROL.sub(" ", str(value)).strip()
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


def _print_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    from kelpie.cli.terminal import print_table

    return print_table(columns, cells)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
