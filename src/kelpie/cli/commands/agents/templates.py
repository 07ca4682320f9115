"""`kelpie templates`: definitions of agents that are saved in versions, and agents made from them."""

import sys
from typing import Annotated

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.confirmation import confirm
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say

commands = group(
    "List, show, create and delete templates, and create agents from them.",
    "templates list",
    "templates create support ada",
    "templates deploy support --set name=Ada",
)
Template = Annotated[str, typer.Argument(help="Name of the template.")]


@commands.command("list", epilog=examples("templates list", "templates list --json"))
def list_templates(limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List templates, newest first."""
    found = client(url).get("/v1/templates", limit=limit)["templates"]
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], each["latest_version"], each["kelpie_unsaved_changes"], each["updated_at"], each["description"])
        for each in found
    ]
    columns = ("name", "latest", "unsaved changes", "changed", "description")
    print_list(columns, rows, "No templates.", spare=("description", "unsaved changes"))


@commands.command(epilog=examples("templates show support", "templates show support --json"))
def show(template: Template, as_json: AsJson = False, url: Url = None) -> None:
    """Show a template, its variables and its versions."""
    found = client(url).get(path("templates", template))
    if as_json:
        print_json(found)
        return
    print_facts(
        {
            "name": found["name"],
            "description": found["description"],
            "latest version": found["latest_version"],
            "current version": "unsaved" if found["kelpie_unsaved_changes"] else found["kelpie_current_version"],
            "variables": ", ".join(found["memory_variables"]) or "none",
        }
    )
    rows = [
        (each["version"], each["created_at"], ", ".join(each["memory_variables"]), each["message"])
        for each in found["versions"]
    ]
    print_list(("version", "created", "variables", "message"), rows, spare=("variables",))


@commands.command(epilog=examples("templates create support ada"))
def create(template: Template, agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Create a template from an agent, without its messages and secrets."""
    server = client(url)
    found = find(server, agent)
    made = server.post("/v1/templates", {"type": "agent", "agent_id": found["id"], "name": template})
    if as_json:
        print_json(made)
        return
    say(f"Created template {made['name']}, version {made['latest_version']}.")


@commands.command(epilog=examples("templates deploy support --name ada --set name=Ada", "templates deploy support:2"))
def deploy(
    template: Annotated[str, typer.Argument(help="Template: NAME, NAME:VERSION, NAME:latest or NAME:current.")],
    name: Annotated[str | None, typer.Option(help="Name of the agent. Defaults to a random one.")] = None,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="VARIABLE=VALUE", help="Value of a variable (repeatable).")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create agents from a template, all of them or none."""
    given: dict[str, str] = {}
    for each in values or ():
        variable, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{each}' must have the form VARIABLE=VALUE", param_hint="--set")
        given[variable] = value
    server = client(url)
    body = {"memory_variables": given} | ({} if name is None else {"agent_name": name})
    made = server.post(path("templates", template, "agents"), body)
    if as_json:
        print_json(made)
        return
    for agent_id in made["agent_ids"]:
        say(f"Created agent {server.get(path('agents', agent_id))['name']} ({agent_id}).")
    for note in made.get("kelpie_notes", ()):
        say(note, file=sys.stderr)


@commands.command(epilog=examples("templates delete support", "templates delete support --yes"))
def delete(
    template: Template,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a template with all versions. Its agents are kept."""
    server = client(url)
    found = server.get(path("templates", template))
    confirm(
        f"Delete template {cell(found['name'])} with {found['latest_version']} version(s)?",
        "deleting the template",
        yes=yes,
    )
    server.delete(path("templates", found["name"]))
    say(f"Deleted template {found['name']}.")
