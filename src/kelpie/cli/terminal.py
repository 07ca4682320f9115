"""Output for terminals only: tables, bars and spinners. Output into a pipe never loads this module."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from kelpie.core.printable_text import readable

TEXT_WIDTH_MIN = 12  # of a column that is wrapped
GAP = 2  # between two columns


def spinner(what: str) -> AbstractContextManager[object]:
    """Shows a spinner until the block ends."""
    return Console(stderr=True).status(Text(readable(what)))


@contextmanager
def bar(what: str, total: int, *, together: bool) -> Generator[Callable[[], None]]:
    """A bar, advanced by calling the result; `together` says that standard output goes to the same terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=together, auto_refresh=False) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.update(task, advance=1, refresh=True)


@contextmanager
def share() -> Generator[Callable[[str, int, int | None], None]]:
    """A bar for progress; the result is called with the current status, the amount done, and the total."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console()) as progress:
        task = progress.add_task("", total=None)

        def show(what: str, done: int, total: int | None) -> None:
            if what:
                progress.update(task, description=readable(what))
            if total:
                progress.update(task, completed=done, total=total)

        yield show


def print_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    """Prints a table, in which texts are wrapped and single words never are: ids must stay whole to be copied.

    Returns False, and prints nothing, when the terminal is too narrow for that.
    """
    console = Console()
    widths = [max(len(text) for text in (name, *column)) for name, *column in zip(columns, *cells, strict=True)]
    texts = [any(" " in text for text in column) for column in zip(*cells, strict=True)]
    needed = [min(width, TEXT_WIDTH_MIN) if text else width for width, text in zip(widths, texts, strict=True)]
    if sum(needed) + GAP * (len(columns) - 1) > console.width:
        return False
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, text in zip(columns, texts, strict=True):
        table.add_column(name, no_wrap=not text)
    for row in cells:
        table.add_row(*(Text(text, overflow="fold") for text in row))
    console.print(table)
    return True
