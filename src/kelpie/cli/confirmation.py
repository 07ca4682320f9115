"""Questions before a command changes something. Without a terminal there is nobody to answer them."""

import sys

import typer

from kelpie.cli.exit_codes import USAGE
from kelpie.cli.output import say


def confirm(question: str, what: str, *, yes: bool) -> None:
    """Asks, unless `--yes` was given; without a terminal the command ends. Raises typer.Exit or typer.Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        say(f"kelpie: Not a terminal: pass --yes to confirm {what}.", file=sys.stderr)
        raise typer.Exit(USAGE)
    typer.confirm(question, abort=True, err=True)
