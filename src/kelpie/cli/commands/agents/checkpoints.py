"""`kelpie agents checkpoint` and `restore`: save an agent's whole memory to a file and restore it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.exit_codes import USAGE
from kelpie.cli.options import Agent, AsJson, Url, client, examples, path
from kelpie.cli.output import cell, print_json, say
from kelpie.world.files import json_file

WAIT_S = 120.0  # a memory may be large

File = Annotated[Path, typer.Argument(help="Checkpoint file.")]


def register(commands: typer.Typer) -> None:
    """Adds both commands to the commands of agents."""
    commands.command(epilog=examples("agents checkpoint ada ada.json"))(checkpoint)
    commands.command(epilog=examples("agents restore ada ada.json --yes"))(restore)


def checkpoint(agent: Agent, file: File, as_json: AsJson = False, url: Url = None) -> None:
    """Save an agent's whole memory to a file."""
    server = client(url, WAIT_S)
    found = find(server, agent)
    document = server.get(path("agents", found["id"], "memory", "checkpoint"))
    json_file.write(file, document)
    held = {name: len(document["memory"][name]) for name in ("blocks", "working_memory", "messages")}
    if as_json:
        print_json({"agent_id": found["id"], "file": str(file), **held})
        return
    say(f"Saved the memory of {found['name']} to {file}: {held['blocks']} blocks, {held['messages']} messages.")


def restore(
    agent: Agent,
    file: File,
    overwrite_shared: Annotated[
        bool, typer.Option("--overwrite-shared", help="Also replace blocks and archives shared with other agents.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Replace an agent's memory with a checkpoint file.

    Either all of the memory is replaced or none. What the agent learned since the checkpoint is lost.
    """
    server = client(url, WAIT_S)
    found, document = find(server, agent), json_file.read(file)
    if not yes and not sys.stdin.isatty():
        say("kelpie: Not a terminal: pass --yes to confirm replacing the memory.", file=sys.stderr)
        raise typer.Exit(USAGE)
    if not yes:
        typer.confirm(f"Replace the memory of {cell(found['name'])} ({found['id']})?", abort=True, err=True)
    query = "?overwrite_shared=true" if overwrite_shared else ""
    done = server.post(path("agents", found["id"], "memory", "restore") + query, document, WAIT_S)
    if as_json:
        print_json(done)
        return
    counts = ", ".join(f"{done[name]} {name}" for name in ("blocks", "entries", "passages", "messages"))
    say(f"Restored the memory of {found['name']}: {counts}.")
    for left in done["left"]:
        say(f"Not replaced: {left['kind']} {left['name']} ({left['id']}), shared with {left['agents']} other agent(s).")
