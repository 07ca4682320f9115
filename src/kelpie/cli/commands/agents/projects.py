"""`kelpie projects`: named collections of agents."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.confirmation import confirm
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say
from kelpie.cli.project_lookup import project_id

commands = group(
    "List, show, create, change and delete projects, and the agents in them.",
    "projects list",
    "projects create garden --tag plants",
    "projects add garden ada",
)
Project = Annotated[str, typer.Argument(help="Name or id of the project.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Tag (repeatable).")]
Owner = Annotated[str | None, typer.Option(help="Owner of the project.")]


@commands.command("list", epilog=examples("projects list", "projects list --tag plants --json"))
def list_projects(
    owner: Annotated[str | None, typer.Option(help="Only those of this owner.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List projects, newest first."""
    chosen = {name: value for name, value in (("owner", owner), ("tag", tag)) if value is not None}
    found = client(url).get("/v1/projects", limit=limit, **chosen)
    if as_json:
        print_json(found)
        return
    rows = [(each["name"], each["id"], each["owner"], ", ".join(each["tags"]), each["description"]) for each in found]
    columns = ("name", "id", "owner", "tags", "description")
    print_list(columns, rows, "No projects.", spare=("description", "owner"))


@commands.command(epilog=examples("projects show garden"))
def show(project: Project, as_json: AsJson = False, url: Url = None) -> None:
    """Show a project and its agents."""
    server = client(url)
    found = server.get(path("projects", project_id(server, project)))
    if as_json:
        print_json(found)
        return
    facts = {name: found[name] for name in ("name", "id", "description", "owner")}
    print_facts(facts | {"tags": ", ".join(found["tags"]), "agents": found["agent_count"]})
    rows = [(each["name"], each["id"], "yes" if each["home"] else "no") for each in found["agents"]]
    print_list(("agent", "id", "home project"), rows, "No agents.")


@commands.command(epilog=examples('projects create garden --tag plants --description "Plants and weather."'))
def create(
    name: Annotated[str, typer.Argument(help="Name of the project.")],
    description: Annotated[str | None, typer.Option(help="Description of the project.")] = None,
    tags: Tag = None,
    owner: Owner = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a project."""
    body: dict[str, Any] = {"name": name, "description": description, "tags": tags or [], "owner": owner}
    made = client(url).post("/v1/projects", body)
    if as_json:
        print_json(made)
        return
    say(f"Created project {cell(made['name'])} ({made['id']}).")


@commands.command(
    epilog=examples("projects update garden --name park", "projects update garden --tag plants --tag roses")
)
def update(
    project: Project,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    description: Annotated[str | None, typer.Option(help="New description.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Tag (repeatable); these replace all tags.")] = None,
    owner: Owner = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a project."""
    given = {"name": name, "description": description, "tags": tags, "owner": owner}
    body = {field: value for field, value in given.items() if value is not None}
    if not body:
        raise typer.BadParameter("give at least one change, such as --name", param_hint="--name")
    server = client(url)
    after = server.patch(path("projects", project_id(server, project)), body)
    if as_json:
        print_json(after)
        return
    say(f"Changed project {cell(after['name'])}.")


@commands.command(epilog=examples("projects add garden ada"))
def add(project: Project, agent: Agent, as_json: AsJson = False, url: Url = None) -> None:
    """Add an agent to a project. It can be in several."""
    server = client(url)
    found = find(server, agent)
    made = server.post(path("projects", project_id(server, project), "agents"), {"agent_id": found["id"]})
    if as_json:
        print_json(made)
        return
    done = "Added agent {} to project {}." if made["results"][0]["added"] else "Agent {} is in project {} already."
    say(done.format(cell(found["name"]), cell(project)))


@commands.command(epilog=examples("projects remove garden ada"))
def remove(project: Project, agent: Agent, url: Url = None) -> None:
    """Remove an agent from a project. The agent is kept."""
    server = client(url)
    found = find(server, agent)
    server.delete(path("projects", project_id(server, project), "agents", found["id"]))
    say(f"Removed agent {cell(found['name'])} from project {cell(project)}.")


@commands.command(epilog=examples("projects delete garden --yes"))
def delete(
    project: Project,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a project. Its agents are kept."""
    server = client(url)
    found = server.get(path("projects", project_id(server, project)))
    confirm(f"Delete project {cell(found['name'])}? Its agents are kept.", "deleting the project", yes=yes)
    server.delete(path("projects", found["id"]))
    say(f"Deleted project {cell(found['name'])}.")
