"""Tables and facts on a terminal: laid out to its width, with ages instead of times."""

import sys
from collections.abc import Mapping, Sequence

from kelpie.cli.display.age import parsed, spelled
from kelpie.cli.display.style import Style
from kelpie.cli.display.table import fitted
from kelpie.core.time import as_datetime
from kelpie.world import terminal
from kelpie.world.clock import SystemClock


def print_fitted(columns: Sequence[str], cells: Sequence[Sequence[str]], spare: Sequence[str], *, wrap: bool) -> None:
    """Prints a table that fits the terminal; a hint on standard error names the columns that do not."""
    now = as_datetime(SystemClock().now())
    table = fitted(columns, cells, terminal.width(sys.stdout), now, spare=spare, wrap=wrap)
    heading, *lines = table.lines
    print(Style(sys.stdout)("heading", heading))
    for line in lines:
        print(line)
    if table.left_out:
        hint = f"Not shown: {', '.join(table.left_out)}. Widen the terminal or add --json."
        print(Style(sys.stderr)("quiet", hint), file=sys.stderr)


def with_ages(facts: Mapping[str, str]) -> dict[str, str]:
    """The same facts, with times as people read them."""
    now = as_datetime(SystemClock().now())
    return {name: spelled(at, now) if (at := parsed(text)) else text for name, text in facts.items()}
