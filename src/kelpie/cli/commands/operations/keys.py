"""`kelpie keys`: API keys. A key is shown once, when it is created."""

import re
import sys
from datetime import timedelta
from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.id_lookup import UnknownId, part_of
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say
from kelpie.cli.project_lookup import project_id
from kelpie.core.access.credential_scopes import Scope
from kelpie.core.errors import InvalidInput
from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from kelpie.world.clock import SystemClock
from kelpie.world.http.cli_client import Client

commands = group("Create, list and revoke API keys.", "keys create laptop", "keys list")

PATH = "/v1/kelpie/keys"
KEYS_MAX = 1000
_DURATION = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@commands.command(epilog=examples("keys create laptop", "keys create reader --scope read --agent demo --expires 30d"))
def create(
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    scope: Annotated[
        Scope, typer.Option(help="What the key allows. Each scope includes the one before it.")
    ] = Scope.write,
    agent: Annotated[
        list[str] | None, typer.Option(help="Limit the key to this agent, by name or id (repeatable).")
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option(help="Limit the key to the agents of this project (repeatable).")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Id of the user who owns the key. Defaults to the default user.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Lifetime such as `90m`, `12h` or `30d`. Defaults to no expiry.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create an API key and show it once. The server keeps only a hash."""
    if not name.strip():
        raise InvalidInput("NAME", "must not be empty; choose a name such as laptop")
    server = client(url)
    body: dict[str, Any] = {"name": name, "scopes": [scope.value]}
    body |= {"user_id": user} if user else {}
    body |= {"agent_ids": [find(server, who)["id"] for who in agent]} if agent else {}
    body |= {"project_ids": [project_id(server, each) for each in project]} if project else {}
    body |= {"expires_at": end_of(expires)} if expires else {}
    made = server.post(PATH, body)
    if as_json:
        print_json(made)
        return
    say("Save the key now; it is shown only once. Clients send it as 'Authorization: Bearer ...'.", file=sys.stderr)
    print_facts({**_facts(made), "key": made["key"]})


@commands.command("list", epilog=examples("keys list", "keys list --json"))
def list_keys(limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List API keys with their owner, scopes and last use."""
    found = client(url).get(PATH, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["id"], each["name"], each["scopes"], _reach(each),
            f"...{each['hint']}", each["user_id"], each["expires_at"] or "never", each["last_used_at"],
        )
        for each in found
    ]  # fmt: skip
    columns = ("id", "name", "scopes", "agents", "key", "user", "expires", "last used")
    print_list(columns, rows, "No keys. `kelpie keys create NAME` creates one.", spare=("user", "key", "agents"))


def _reach(key: dict[str, Any]) -> str:
    """The agents that a key is limited to, in a few words."""
    if key["project_ids"] is not None:
        return f"of {len(key['project_ids'])} projects"
    return "all" if key["agent_ids"] is None else str(len(key["agent_ids"]))


@commands.command(epilog=examples("keys revoke laptop", "keys revoke key-..."))
def revoke(
    key: Annotated[str, typer.Argument(help="Name or id of the key; see `kelpie keys list`.")], url: Url = None
) -> None:
    """Revoke an API key. It stops working at once."""
    server = client(url)
    gone = server.delete(path("kelpie", "keys", _id_of(server, key)))
    say(f"Revoked key {cell(gone['name'])} ({gone['id']}).")


def _id_of(server: Client, key: str) -> str:
    """Returns the id of the key with this name or id. Raises UnknownId, Unreachable, ErrorResponse."""
    keys = server.get(PATH, limit=KEYS_MAX)
    same = [each["id"] for each in keys if key in (each["id"], each["name"])]
    start = part_of("key", key)
    same = same or [each["id"] for each in keys if start and each["id"].startswith(f"key-{start}")]
    if len(same) > 1:
        raise UnknownId(f"{len(same)} keys match '{key[:80]}'; use an id: {', '.join(same)}")
    if not same:
        raise UnknownId(f"there is no key with the name or id '{key[:80]}'; see `kelpie keys list`")
    return str(same[0])


def _facts(key: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": key["id"],
        "name": key["name"],
        "scopes": key["scopes"],
        "agents": "all" if key["agent_ids"] is None else key["agent_ids"],
        "user": key["user_id"],
        "expires": key["expires_at"] or "never",
    }


def end_of(text: str) -> str:
    """Returns the time at which a duration that starts now ends. Raises InvalidInput."""
    found = _DURATION.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise InvalidInput("--expires", f"'{text[:80]}' is not a duration such as 90m, 12h or 30d")
    length = timedelta(**{_UNITS[found[2]]: int(found[1])})
    at = SystemClock().now() + round(length.total_seconds()) * MICROS_PER_SECOND
    return as_datetime(at).isoformat()
