"""`kelpie secrets`: the keys that encrypt stored secrets, and their rotation. The running server does the work."""

from typing import Any

import typer

from kelpie.cli.exit_codes import ERROR
from kelpie.cli.options import AsJson, Url, client, examples, group
from kelpie.cli.output import cell, print_facts, print_json, print_rows, say, waiting

commands = group("Show and rotate the encryption key of stored secrets.", "secrets status", "secrets rotate")

PATH = "/v1/kelpie/encryption"
WAIT_S = 30.0  # of one request
REQUESTS_MAX = 120


@commands.command(epilog=examples("secrets status", "secrets status --json"))
def status(as_json: AsJson = False, url: Url = None) -> None:
    """Show the encryption keys by id, and the state of a rotation."""
    _show(client(url).get(PATH), as_json)


@commands.command(epilog=examples("secrets rotate"))
def rotate(as_json: AsJson = False, url: Url = None) -> None:
    """Encrypt all stored secrets with a new key, and remove the old one.

    The server keeps running. If it stops in between, it continues at its next start.
    """
    server = client(url, WAIT_S * 2)
    found = server.post(f"{PATH}/rotate", {})
    with waiting("Encrypting the stored secrets ..."):
        for _ in range(REQUESTS_MAX):
            if not found["rotating"]:
                break
            found = server.get(f"{PATH}?wait_s={WAIT_S:g}")
    _show(found, as_json)
    if found["rotating"] or found["unreadable_count"]:
        raise typer.Exit(ERROR)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_facts({"keys in": cell(found["origin"]), "rotating": "yes" if found["rotating"] else "no"})
    print_rows(
        ("key", "state", "created"),
        [(key["id"], _state(key), key["created_at"]) for key in found["keys"]],
        "No encryption keys.",
    )
    if found["unreadable_count"]:
        say(f"{found['unreadable_count']} secrets cannot be decrypted; set them again:")
        for place in found["unreadable"]:
            say(f"  {cell(place)}")


def _state(key: dict[str, Any]) -> str:
    return "current" if key["current"] else "lost" if key["lost"] else "still in use"
