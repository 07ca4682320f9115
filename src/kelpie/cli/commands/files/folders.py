"""`kelpie folders`: folders of files, and the agents that read them."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.commands.files.lookup import Folder, find_folder
from kelpie.cli.confirmation import confirm
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_json, print_list, say

commands = group(
    "List, create and delete folders of files, and attach them to agents.",
    "folders list",
    "folders create handbook --description 'Rules of the house'",
    "folders attach handbook demo",
)


@commands.command("list", epilog=examples("folders list", "folders list --agent demo --json"))
def list_folders(
    agent: Annotated[str | None, typer.Option(help="Show only folders of this agent (name or id).")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List folders, newest first."""
    server = client(url)
    place = path("agents", find(server, agent)["id"], "folders") if agent else "/v1/folders/"
    found = server.get(place, limit=limit, order="desc")
    if as_json:
        print_json(found)
        return
    stats = server.get(path("folders", "metadata"), include_detailed_per_source_metadata="true")["sources"]
    counts = {each["source_id"]: (each["file_count"], each["total_size"]) for each in stats}
    rows = [(each["id"], each["name"], *counts.get(each["id"], (0, 0)), each["description"]) for each in found]
    print_list(("id", "name", "files", "bytes", "description"), rows, "No folders.", spare=("description", "id"))


@commands.command(
    epilog=examples("folders create handbook", "folders create handbook --instructions 'Quote it exactly.' --json")
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the new folder.")],
    description: Annotated[str | None, typer.Option(help="What is in it; agents see this.")] = None,
    instructions: Annotated[str | None, typer.Option(help="How agents shall use it; agents see this.")] = None,
    embedding: Annotated[str | None, typer.Option(help="Embedding model. Defaults to that of the server.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a folder."""
    given = {"description": description, "instructions": instructions, "embedding": embedding}
    body: dict[str, Any] = {"name": name} | {key: value for key, value in given.items() if value is not None}
    made = client(url).post("/v1/folders/", body)
    if as_json:
        print_json(made)
    else:
        say(f"Created folder {cell(made['name'])} ({made['id']}).")


@commands.command(epilog=examples("folders delete handbook", "folders delete handbook --yes"))
def delete(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a folder with all its files. Agents that have it can no longer read them."""
    server = client(url)
    found = find_folder(server, folder)
    confirm(f"Delete folder {cell(found['name'])} with all its files?", "deleting the folder", yes=yes)
    server.delete(path("folders", found["id"]))
    say(f"Deleted folder {cell(found['name'])}.")


@commands.command(epilog=examples("folders attach handbook demo"))
def attach(folder: Folder, agent: Agent, url: Url = None) -> None:
    """Let an agent read a folder. With its first folder it gets the file tools."""
    _link(folder, agent, url, "attach", "Attached folder {folder} to {agent}.")


@commands.command(epilog=examples("folders detach handbook demo"))
def detach(folder: Folder, agent: Agent, url: Url = None) -> None:
    """Take a folder from an agent. With its last folder it loses the file tools."""
    _link(folder, agent, url, "detach", "Detached folder {folder} from {agent}.")


def _link(folder: str, agent: str, url: str | None, verb: str, told: str) -> None:
    server = client(url)
    found, who = find_folder(server, folder), find(server, agent)
    server.patch(path("agents", who["id"], "folders", verb, found["id"]), None)
    say(told.format(folder=cell(found["name"]), agent=cell(who["name"])))
