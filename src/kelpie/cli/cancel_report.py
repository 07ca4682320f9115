"""What came of a cancel, for people and for scripts."""

from collections.abc import Mapping

import typer

from kelpie.cli.exit_codes import ERROR
from kelpie.cli.output import print_json, print_rows


def print_cancelled(told: Mapping[str, str], as_json: bool) -> None:
    """Shows each run and whether it is over; ends the command when one is not."""
    if as_json:
        print_json(dict(told))
    else:
        rows = [(run_id, "over" if word == "cancelled" else "not ended") for run_id, word in told.items()]
        print_rows(("run", "now"), rows, "There was nothing to cancel.")
    if any(word != "cancelled" for word in told.values()):
        raise typer.Exit(ERROR)
