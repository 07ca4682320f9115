"""Output of commands: JSON on request, a table on a terminal, plain aligned lines everywhere else.

Names and texts come from others: control and bidirectional characters in them never reach the terminal. No other module
of the command line prints by itself; a test looks for that. The terminal library is loaded late.
"""

import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from kelpie.core.printable_text import escaped_json, on_one_line, readable

CELL_CHARS_MAX = 200


def say(text: str = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Prints a text; by default on standard output."""
    print(readable(text), file=file, end=end, flush=flush)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Prints a value as JSON, for a program to read."""
    print(escaped_json(json.dumps(value, indent=indent, ensure_ascii=False)))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str = "") -> None:
    """Prints rows under their headings; `nothing` is printed when there are none."""
    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        say(nothing, file=sys.stderr)
    elif not (sys.stdout.isatty() and _print_table(columns, cells)):
        _print_plain(columns, cells)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Prints names and values, one a line; empty ones are left out."""
    shown = {name: cell(value) for name, value in facts.items() if value not in (None, "", [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        say(f"{name:<{width}}  {value}")


def print_text(text: str) -> None:
    """Prints a text of several lines."""
    for line in text.removesuffix("\n").split("\n"):
        print(on_one_line(line.expandtabs()))


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
    text = on_one_line(str(value)).strip()
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


def _print_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    from kelpie.cli.terminal import print_table

    return print_table(columns, cells)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
