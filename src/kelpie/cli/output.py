"""Output of commands: JSON on request, a table that fits on a terminal, complete and plain lines everywhere else.

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
PADDED_MAX = 80


def say(text: str = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Prints a text; by default on standard output."""
    print(readable(text), file=file, end=end, flush=flush)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Prints a value as JSON, for a program to read."""
    print(escaped_json(json.dumps(value, indent=indent, ensure_ascii=False)))


def print_list(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str = "", *, spare: Sequence[str] = ()
) -> None:
    """Prints records under their headings, one a line; `nothing` is printed when there are none.

    On a terminal ids are short, times are ages and long texts are cut. Where that is still too wide, the columns that
    `spare` names are left out first.
    """
    _print_table(columns, rows, nothing, spare, wrap=False)


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str = "", *, spare: Sequence[str] = ()
) -> None:
    """Prints a table of texts, which are wrapped on a terminal instead of cut; otherwise as `print_list`."""
    _print_table(columns, rows, nothing, spare, wrap=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Prints names and values, one a line; empty ones are left out. On a terminal times come with their age."""
    shown = {name: _line(value) for name, value in facts.items() if value not in (None, "", [], {})}
    if sys.stdout.isatty():
        from kelpie.cli.display.terminal_table import with_ages

        shown = with_ages(shown)
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
    from kelpie.cli.display.terminal import spinner

    with spinner(what):
        yield


@contextmanager
def counted(what: str, total: int) -> Generator[Callable[[], None]]:
    """A progress bar on a terminal, advanced by calling the result; nothing elsewhere. Printed lines stay readable."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from kelpie.cli.display.terminal import bar

    # Only output to the same terminal must be kept apart from the bar; a pipe gets its lines as they are.
    with bar(what, total, together=sys.stdout.isatty()) as move:
        yield move


def cell(value: Any) -> str:
    """A value on one line, cut if it is long."""
    text = _line(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


def _line(value: Any) -> str:
    """A value on one line, complete."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(str(item) for item in value)
    return on_one_line(str(value)).strip()


def _print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str, spare: Sequence[str], *, wrap: bool
) -> None:
    if not rows:
        say(nothing, file=sys.stderr)
    elif sys.stdout.isatty():
        from kelpie.cli.display.terminal_table import print_fitted

        print_fitted(columns, [[cell(value) or "-" for value in row] for row in rows], spare, wrap=wrap)
    else:
        _print_plain(columns, [[_line(value) or "-" for value in row] for row in rows])


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Prints complete lines; a column is padded up to a width, so that one long text does not blow up all lines."""
    lines = [[name.upper() for name in columns], *cells]
    widths = [min(PADDED_MAX, max(len(line[place]) for line in lines)) for place in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
