"""`kelpie agents export` and `import`: agents as files that Letta and Kelpie read."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import orjson
import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.options import Agent, AsJson, Url, client, examples, path
from kelpie.cli.output import print_json, say
from kelpie.world.files import json_file

WAIT_S = 600.0  # a history may be long


def register(commands: typer.Typer) -> None:
    """Adds both commands to the commands of agents."""
    commands.command("export", epilog=examples("agents export ada ada.af"))(export)
    commands.command("import", epilog=examples("agents import ada.af --name ada-2"))(import_)


def export(
    agent: Agent,
    file: Annotated[Path | None, typer.Argument(help="Agent file to write. Without it the file is printed.")] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Export this conversation instead of the agent's own messages.")
    ] = None,
    no_messages: Annotated[bool, typer.Option("--no-messages", help="Leave the messages out.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Write an agent to an agent file (.af), without its secrets."""
    server = client(url, WAIT_S)
    found = find(server, agent)
    query = {"scrub_messages": "true" if no_messages else "false"}
    if conversation is not None:
        query["conversation_id"] = conversation
    document = server.get(path("agents", found["id"], "export"), **query)
    if file is None:
        print_json(document)
        return
    json_file.write(file, document)
    messages = sum(len(each["messages"]) for each in document["agents"])
    if as_json:
        print_json(
            {"agent_id": found["id"], "file": str(file), "agents": len(document["agents"]), "messages": messages}
        )
        return
    say(f"Exported {found['name']} to {file}: {len(document['agents'])} agent(s), {messages} messages.")


def import_(
    file: Annotated[Path, typer.Argument(help="Agent file to read; gzip is understood.")],
    name: Annotated[str | None, typer.Option(help="Name of the new agent. Defaults to the name in the file.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the new agents. Defaults to that of the file.")] = None,
    embedding: Annotated[str | None, typer.Option(help="Embedding model of the new agents.")] = None,
    no_messages: Annotated[bool, typer.Option("--no-messages", help="Leave the messages out.")] = False,
    keep_tools: Annotated[
        bool, typer.Option("--keep-tools", help="Keep existing tools that have the name of a tool in the file.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create agents from an agent file (.af)."""
    server = client(url, WAIT_S)
    given = {"name": name, "model": model, "embedding": embedding}
    query = {key: value for key, value in given.items() if value is not None} | {"append_copy_suffix": "false"}
    query["strip_messages"] = "true" if no_messages else "false"
    query["override_existing_tools"] = "false" if keep_tools else "true"
    target = f"{path('agents', 'import')}?{urlencode(query)}"
    headers = {"Content-Type": "application/json"}
    done = orjson.loads(next(server.documents(target, json_file.raw(file), headers, WAIT_S)))
    if as_json:
        print_json(done)
        return
    for agent_id in done["agent_ids"]:
        say(f"Imported {server.get(path('agents', agent_id))['name']} ({agent_id}).")
    for note in done.get("kelpie_notes", ()):
        say(note, file=sys.stderr)
