"""Names of agents as people type them: never empty, and given twice only on purpose."""

import sys

import typer

from kelpie.cli.output import cell, say
from kelpie.core.errors import InvalidInput
from kelpie.world.http.cli_client import Client


def check_name(name: str, field: str) -> None:
    """Raises InvalidInput for a name that is empty or blank."""
    if not name.strip():
        raise InvalidInput(field, "must not be empty; choose a name such as ada")


def confirm_name(server: Client, name: str, *, yes: bool) -> None:
    """Asks before a second agent gets a name; without a terminal it only warns.

    The API allows equal names, and scripts that create agents and use their ids must go on working. Raises typer.Abort.
    """
    same = server.get("/v1/agents/", name=name, limit=1)
    if not same or yes:
        return
    taken = f"Another agent is already named {cell(name)} ({same[0]['id']})."
    if sys.stdin.isatty():
        typer.confirm(f"{taken} Use the name for a second one?", abort=True, err=True)
    else:
        say(f"kelpie: warning: {taken} Use ids from now on, because the name is no longer unique.", file=sys.stderr)
