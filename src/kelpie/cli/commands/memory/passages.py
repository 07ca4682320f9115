"""`kelpie passages`: search in an agent's archival memory, and additions to it."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.options import Agent, AsJson, Url, client, examples, group, path
from kelpie.cli.output import cell, print_json, print_rows, say
from kelpie.core.errors import InvalidInput

commands = group(
    "Search the archival memory of an agent and add to it.",
    "passages search demo 'favorite tea'",
    "passages add demo 'Ada likes green tea.'",
)

Tag = Annotated[list[str] | None, typer.Option(help="Tag (repeatable).")]
SEARCH_S = 60.0  # a query may have to be embedded first


@commands.command(epilog=examples("passages search demo 'favorite tea'", "passages search demo tea -n 20 --json"))
def search(
    agent: Agent,
    query: Annotated[str, typer.Argument(help="Words to search for.")],
    tag: Tag = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number to show.")] = 5,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Search an agent's passages by words and meaning, best first."""
    server = client(url, SEARCH_S)
    asked: dict[str, Any] = {"query": query, "top_k": limit} | ({"tags": tag} if tag else {})
    found = server.get(path("agents", find(server, agent)["id"], "archival-memory", "search"), **asked)
    if as_json:
        print_json(found)
        return
    rows = [(each["timestamp"], each["content"], each["tags"] or None) for each in found["results"]]
    print_rows(("created", "text", "tags"), rows, "No passages.", spare=("tags", "created"))


@commands.command(
    epilog=examples("passages add demo 'Ada likes green tea.'", "passages add demo 'Likes tea' --tag taste")
)
def add(
    agent: Agent,
    text: Annotated[str, typer.Argument(help="Text to remember.")],
    tag: Tag = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a passage to an agent's archival memory."""
    if not text.strip():
        raise InvalidInput("TEXT", "must not be empty")
    server = client(url, SEARCH_S)
    found = find(server, agent)
    body: dict[str, Any] = {"text": text} | ({"tags": tag} if tag else {})
    made = server.post(path("agents", found["id"], "archival-memory"), body)
    if as_json:
        print_json(made)
    else:
        say(f"Added passage {made[0]['id']} to the archival memory of {cell(found['name'])}.")
