"""`kelpie keys`: API keys for programs and people. A key is shown once, when it is made."""

import re
import sys
from datetime import timedelta
from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_rows
from kelpie.core.access.credential_scopes import Scope
from kelpie.core.errors import InvalidId, InvalidInput
from kelpie.core.ids import KeyId
from kelpie.core.time import MICROS_PER_SECOND, as_datetime
from kelpie.world.clock import SystemClock

commands = group("Make, list and revoke API keys.", "keys create laptop", "keys list")

PATH = "/v1/kelpie/keys"
_DURATION = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@commands.command(epilog=examples("keys create laptop", "keys create reader --scope read --agent demo --expires 30d"))
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    scope: Annotated[Scope, typer.Option(help="What it allows; each includes the one before it.")] = Scope.write,
    agent: Annotated[list[str] | None, typer.Option(help="Only this agent, by name or id; may be given again.")] = None,
    user: Annotated[
        str | None, typer.Option(help="Id of the user whose key it is; without it, the default user.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long it is valid: `90m`, `12h`, `30d`; else for ever.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Make a key and show it: this once, since only a hash of it is kept."""
    server = client(url)
    body: dict[str, Any] = {"name": name, "scopes": [scope.value]}
    body |= {"user_id": user} if user else {}
    body |= {"agent_ids": [find(server, who)["id"] for who in agent]} if agent else {}
    body |= {"expires_at": end_of(expires)} if expires else {}
    made = server.post(PATH, body)
    if as_json:
        print_json(made)
        return
    print("This is the only time the key is shown; clients send it as 'Authorization: Bearer ...'.", file=sys.stderr)
    print_facts({**_facts(made), "key": made["key"]})


@commands.command("list", epilog=examples("keys list", "keys list --json"))
def list_keys(limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List the keys: whose they are, what they allow, and when they were used last."""
    found = client(url).get(PATH, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["id"], each["name"], each["scopes"], "all" if each["agent_ids"] is None else len(each["agent_ids"]),
            f"...{each['hint']}", each["user_id"], each["expires_at"] or "never", each["last_used_at"],
        )
        for each in found
    ]  # fmt: skip
    columns = ("id", "name", "scopes", "agents", "ends in", "user", "expires", "last used")
    print_rows(columns, rows, "There are no keys; `kelpie keys create NAME` makes one.")


@commands.command(epilog=examples("keys revoke key-..."))
def revoke(
    key: Annotated[str, typer.Argument(help="Id of the key; `kelpie keys list` shows them.")], url: Url = None
) -> None:
    """End a key, at once."""
    try:
        KeyId.parse(key)
    except InvalidId:
        raise InvalidInput("KEY", f"'{key[:80]}' is not the id of a key; `kelpie keys list` shows them") from None
    gone = client(url).delete(path("kelpie", "keys", key))
    print(f"The key '{cell(gone['name'])}' ({gone['id']}) is revoked.")


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
    """The time at which something ends that begins now. Raises InvalidInput."""
    found = _DURATION.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise InvalidInput("--expires", f"'{text[:80]}' is not a time like 90m, 12h or 30d")
    length = timedelta(**{_UNITS[found[2]]: int(found[1])})
    at = SystemClock().now() + round(length.total_seconds()) * MICROS_PER_SECOND
    return as_datetime(at).isoformat()
