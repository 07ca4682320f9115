"""Report of a cancel request, as a table or JSON."""

from collections.abc import Mapping

import typer

from kelpie.cli.exit_codes import ERROR
from kelpie.cli.output import print_json, print_rows


def print_cancelled(told: Mapping[str, str], as_json: bool) -> None:
    """Prints each run and whether it has ended. Raises typer.Exit if one has not."""
    if as_json:
        print_json(dict(told))
    else:
        rows = [(run_id, "ended" if word == "cancelled" else "still running") for run_id, word in told.items()]
        print_rows(("run", "status"), rows, "Nothing to cancel.")
    if any(word != "cancelled" for word in told.values()):
        raise typer.Exit(ERROR)
