"""`kelpie hooks`: addresses at which other programs wake an agent."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.confirmation import confirm
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_json, print_list, say
from kelpie.world.http.cli_client import Client

commands = group(
    "List, add, renew, switch off and delete webhooks.",
    "hooks list",
    "hooks add ada alerts",
    "hooks renew hook-1a2b3c4d",
)
Hook = Annotated[str, typer.Argument(help="Id of the webhook.")]


@commands.command("list", epilog=examples("hooks list", "hooks list --agent ada --json"))
def list_hooks(
    agent: Annotated[str | None, typer.Option(help="Only those of this agent: name or id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List webhooks, newest first. Their addresses are secret and not shown."""
    server = client(url)
    where = "/v1/kelpie/hooks" if agent is None else path("agents", find(server, agent)["id"], "hooks")
    found = server.get(where, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["agent_id"], each["name"], "on" if each["enabled"] else "off", each["last_used_at"])
        for each in found
    ]
    print_list(("id", "agent", "name", "state", "last used"), rows, "No webhooks.", spare=("agent",))


@commands.command(
    epilog=examples("hooks add ada alerts", 'hooks add ada builds --instructions "Tell me if a build failed."')
)
def add(
    agent: Agent,
    name: Annotated[str, typer.Argument(help="Name of the webhook.")],
    instructions: Annotated[str | None, typer.Option(help="Text that stands before each delivery.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a webhook to an agent and print its address, which is shown only now."""
    server = client(url)
    found = find(server, agent)
    made = server.post(path("agents", found["id"], "hooks"), {"name": name, "instructions": instructions})
    if as_json:
        print_json(made)
        return
    say(f"Added webhook {made['id']} to agent {cell(found['name'])}. Its address is secret and is shown only now:")
    say(f"{server.base_url}{made['path']}")


@commands.command(epilog=examples("hooks renew hook-1a2b3c4d"))
def renew(hook: Hook, as_json: AsJson = False, url: Url = None) -> None:
    """Give a webhook a new address. The old one stops working at once."""
    server = client(url)
    made = server.post(f"{_path(_find(server, hook))}/renew", {})
    if as_json:
        print_json(made)
        return
    say(f"The new address of webhook {made['id']} is shown only now:")
    say(f"{server.base_url}{made['path']}")


@commands.command(epilog=examples("hooks disable hook-1a2b3c4d"))
def disable(hook: Hook, as_json: AsJson = False, url: Url = None) -> None:
    """Switch a webhook off. Deliveries are refused."""
    _switch(hook, url, as_json, on=False)


@commands.command(epilog=examples("hooks enable hook-1a2b3c4d"))
def enable(hook: Hook, as_json: AsJson = False, url: Url = None) -> None:
    """Switch a webhook on again."""
    _switch(hook, url, as_json, on=True)


@commands.command(epilog=examples("hooks delete hook-1a2b3c4d --yes"))
def delete(
    hook: Hook,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a webhook."""
    server = client(url)
    found = _find(server, hook)
    confirm(f"Delete webhook {cell(found['name'])} ({found['id']})?", "deleting the webhook", yes=yes)
    server.delete(_path(found))
    say(f"Deleted webhook {found['id']}.")


def _switch(hook: str, url: str | None, as_json: bool, *, on: bool) -> None:
    server = client(url)
    after = server.patch(_path(_find(server, hook)), {"enabled": on})
    if as_json:
        print_json(after)
        return
    say(f"Switched webhook {after['id']} {'on' if on else 'off'}.")


def _find(server: Client, hook: str) -> dict[str, Any]:
    found = whole_id(server, "hook", hook, "webhook", "`kelpie hooks list` shows them.")
    return server.get(path("kelpie", "hooks", found))


def _path(hook: dict[str, Any]) -> str:
    return path("agents", hook["agent_id"], "hooks", hook["id"])
