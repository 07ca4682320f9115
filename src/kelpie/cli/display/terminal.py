"""Output for terminals only: bars and spinners. Output into a pipe never loads this module."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from kelpie.core.printable_text import readable


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
