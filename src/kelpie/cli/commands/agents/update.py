"""`kelpie agents update`: changes of an agent's name, model, prompt, description and tags."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.commands.agents.names import check_name, confirm_name
from kelpie.cli.options import Agent, AsJson, Url, client, examples, path
from kelpie.cli.output import cell, print_json, say
from kelpie.cli.typed_text import given_text
from kelpie.core.errors import InvalidInput
from kelpie.world.http.cli_client import Client


def register(commands: typer.Typer) -> None:
    """Adds this command to the commands of agents."""
    commands.command(
        epilog=examples("agents update ada --model openai/gpt-4o", "agents update ada --system - < prompt.txt")
    )(update)


def update(
    agent: Agent,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    model: Annotated[str | None, typer.Option(help="Model handle.")] = None,
    embedding: Annotated[str | None, typer.Option(help="Embedding model handle.")] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System prompt; `-` reads it from standard input.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What the agent is for.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to add (repeatable).")] = None,
    remove_tag: Annotated[list[str] | None, typer.Option(help="Tag to remove (repeatable).")] = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone such as `Europe/Oslo`.")] = None,
    context_window: Annotated[int | None, typer.Option(min=1, help="Limit of the context window, in tokens.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use a name that another agent has without asking.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change an agent. Options that you omit leave their value as it is."""
    if name is not None:
        check_name(name, "--name")
    server = client(url)
    found = find(server, agent)
    body: dict[str, Any] = {
        "name": name,
        "model": model,
        "embedding": embedding,
        "system": None if system is None else given_text(system, "--system"),
        "description": description,
        "tags": _tags(server, found["id"], tag, remove_tag),
        "timezone": timezone,
        "context_window_limit": context_window,
    }
    changes = {field: value for field, value in body.items() if value is not None}
    if not changes:
        raise InvalidInput("OPTIONS", "nothing to change; give at least one of --name, --model, --system, --tag, ...")
    if name is not None and name != found["name"]:
        confirm_name(server, name, yes=yes)
    changed = server.patch(path("agents", found["id"]), changes)
    if as_json:
        print_json(changed)
    else:
        fields = ", ".join(field.replace("_", " ") for field in changes)
        say(f"Updated agent {cell(changed['name'])} ({changed['id']}): {fields}.")


def _tags(server: Client, agent_id: str, more: list[str] | None, fewer: list[str] | None) -> list[str] | None:
    if not more and not fewer:
        return None
    now: list[str] = server.get(path("agents", agent_id), include="agent.tags")["tags"]
    if absent := sorted(set(fewer or ()) - set(now)):
        raise InvalidInput("--remove-tag", f"the agent has no tag {', '.join(absent)}")
    return list(dict.fromkeys(each for each in [*now, *(more or ())] if each not in (fewer or ())))
