"""`kelpie blocks show`, `set`, `edit`, `create`, `attach` and `detach`: reading and writing memory blocks."""

import sys
from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.commands.memory.block_lookup import Block, block_id
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import Agent, AsJson, Url, client, examples, path
from kelpie.cli.output import cell, print_facts, print_json, print_text, say
from kelpie.cli.typed_text import edited, given_text
from kelpie.core.errors import Conflict, InvalidInput, KelpieError

Description = Annotated[str | None, typer.Option(metavar="TEXT", help="Tells the agent what the block is for.")]
CharLimit = Annotated[int | None, typer.Option("--limit", min=0, help="Maximum number of characters.")]


def register(commands: typer.Typer) -> None:
    """Adds these commands to the commands of blocks."""
    commands.command(epilog=examples("blocks show demo/human", "blocks show demo/human --json"))(show)
    commands.command(
        "set", epilog=examples("blocks set demo/human 'Likes tea.'", "blocks set demo/human - < human.txt")
    )(set_value)
    commands.command(epilog=examples("blocks edit demo/human"))(edit)
    commands.command(
        epilog=examples(
            "blocks create notes 'To do: tea.' --agent demo", "blocks create rules - --read-only < rules.txt"
        )
    )(create)
    commands.command(epilog=examples("blocks attach block-... ada"))(attach)
    commands.command(epilog=examples("blocks detach demo/notes demo"))(detach)


def show(block: Block, as_json: AsJson = False, url: Url = None) -> None:
    """Show a block. In a pipe only its value is printed."""
    server = client(url)
    found = server.get(path("blocks", block_id(server, block)))
    if as_json:
        print_json(found)
        return
    if sys.stdout.isatty():
        print_facts(
            {
                "label": found["label"],
                "id": found["id"],
                "description": found["description"],
                "characters": f"{len(found['value'])} of {found['limit']}",
                "read-only": found["read_only"],
                "tags": found["tags"],
            }
        )
        say()
    print_text(found["value"] or ("(empty)" if sys.stdout.isatty() else ""))


def set_value(
    block: Block,
    value: Annotated[
        str | None, typer.Argument(help="New value; `-` reads it from standard input.", show_default=False)
    ] = None,
    description: Description = None,
    limit: CharLimit = None,
    read_only: Annotated[
        bool | None, typer.Option("--read-only/--writable", help="Whether the agent may change the block.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Set the value of a block, or its description, limit and whether it is read-only."""
    body: dict[str, Any] = {
        "value": None if value is None else given_text(value, "VALUE"),
        "description": description,
        "limit": limit,
        "read_only": read_only,
    }
    changes = {field: given for field, given in body.items() if given is not None}
    if not changes:
        raise InvalidInput("VALUE", "nothing to change; give a value or an option")
    server = client(url)
    _report(server.patch(path("blocks", block_id(server, block)), changes), "Updated", as_json)


def edit(block: Block, url: Url = None) -> None:
    """Edit the value of a block in your editor (VISUAL, EDITOR)."""
    server = client(url)
    place = path("blocks", block_id(server, block))
    before = server.get(place)

    def store(value: str) -> None:
        if server.get(place)["value"] != before["value"]:
            raise Conflict(f"block {before['label']} was changed by somebody else while you edited it")
        server.patch(place, {"value": value})

    # Editors end a file with a newline, which the block need not have.
    ends = before["value"].endswith("\n")
    changed = edited(
        before["value"] + ("" if ends else "\n"), ".txt", lambda text: store(text if ends else text.removesuffix("\n"))
    )
    say(f"{'Updated' if changed else 'Nothing changed in'} block {cell(before['label'])} ({before['id']}).")


def create(
    label: Annotated[str, typer.Argument(help="Label of the block.")],
    value: Annotated[str, typer.Argument(help="Value; `-` reads it from standard input.", show_default=False)] = "",
    agent: Annotated[
        list[str] | None, typer.Option(help="Attach it to this agent, by name or id (repeatable).")
    ] = None,
    description: Description = None,
    limit: CharLimit = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not let agents change the block.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a block. Without `--agent` it is attached to no agent."""
    if not label.strip():
        raise InvalidInput("LABEL", "must not be empty; choose a label such as notes")
    server = client(url)
    agents = [find(server, who) for who in agent or ()]
    body: dict[str, Any] = {"label": label, "value": given_text(value, "VALUE"), "read_only": read_only}
    body |= {"description": description} if description is not None else {}
    body |= {"limit": limit} if limit is not None else {}
    made = server.post("/v1/blocks/", body)
    try:
        for each in agents:
            server.patch(path("agents", each["id"], "core-memory", "blocks", "attach", made["id"]), None)
    except KelpieError:
        server.delete(path("blocks", made["id"]))
        raise
    _report(made, "Created", as_json)
    if not as_json:
        for each in agents:
            say(f"Attached it to agent {cell(each['name'])}.")


def attach(block: Block, agent: Agent, url: Url = None) -> None:
    """Attach a block to an agent. Several agents can share a block."""
    server = client(url)
    who, found = find(server, agent), server.get(path("blocks", block_id(server, block)))
    server.patch(path("agents", who["id"], "core-memory", "blocks", "attach", found["id"]), None)
    say(f"Attached block {cell(found['label'])} ({found['id']}) to agent {cell(who['name'])}.")


def detach(block: Block, agent: Agent, url: Url = None) -> None:
    """Detach a block from an agent. The block itself is kept."""
    server = client(url)
    who, found = find(server, agent), server.get(path("blocks", block_id(server, block)))
    attached = server.get(path("agents", who["id"], "core-memory", "blocks"))
    if found["id"] not in (each["id"] for each in attached):
        raise UnknownId(f"agent {who['name']} does not have block {found['label']} ({found['id']})")
    server.patch(path("agents", who["id"], "core-memory", "blocks", "detach", found["id"]), None)
    say(f"Detached block {cell(found['label'])} ({found['id']}) from agent {cell(who['name'])}.")


def _report(block: dict[str, Any], done: str, as_json: bool) -> None:
    if as_json:
        print_json(block)
    else:
        say(f"{done} block {cell(block['label'])} ({block['id']}).")
