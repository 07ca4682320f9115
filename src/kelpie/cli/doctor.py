"""`kelpie doctor`: what is configured and from where, what the server found, what this machine and this Python have.

It looks and never changes anything. What it cannot know it says.
"""

import os
import sys
from dataclasses import asdict
from typing import Any

from kelpie.cli.config_commands import described
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.model_commands import abilities
from kelpie.cli.output import print_json, print_rows
from kelpie.cli.running import address
from kelpie.core.errors import KelpieError
from kelpie.core.settings import VARIABLES, Resolved
from kelpie.world import machine
from kelpie.world.client import Client

# A listing may ask several providers, each for some seconds.
PATIENCE_S = 60.0
NO_SANDBOX = (
    "Kelpie has no sandbox yet: tools with code of their own are refused, and the built-in ones need none. "
    "The list says what this machine shows, not that it works."
)


def doctor(found: Resolved, url: str | None, *, as_json: bool) -> int:
    """Prints what there is to know; 1 when the server or a provider does not answer."""
    told = {
        "system": machine.system(),
        "settings": settings(found),
        "server": server(url or address(found.settings)),
        "isolation": {"sandbox": None, "note": NO_SANDBOX, "machine": [asdict(each) for each in machine.isolation()]},
        "letta": letta(),
    }
    if as_json:
        print_json(told)
    else:
        _print(told)
    failing = [each for each in told["server"]["providers"] if each["error"]]
    return ERROR if told["server"]["error"] or failing else OK


def settings(found: Resolved) -> dict[str, Any]:
    """What is set, with its origin, and variables of Letta that are set and mean nothing here."""
    ignored = sorted(name for name in os.environ if name.startswith("LETTA_") and name not in VARIABLES)
    chosen = [row for row in described(found) if row["source"] != "default"]
    return {"file": found.file, "set": chosen, "ignored": ignored}


def server(url: str) -> dict[str, Any]:
    """The server and what it says of its providers and models; the error when it does not answer."""
    told: dict[str, Any] = {"url": url, "version": None, "error": None, "providers": [], "absent": []}
    client = Client(url, PATIENCE_S)
    try:
        told["version"] = client.get("/v1/health/")["version"]
        told |= client.get("/v1/kelpie/models")
    except KelpieError as error:
        told["error"] = str(error)
    return told


def letta() -> dict[str, Any]:
    """Whether a package called letta is installed beside Kelpie, and whether it is a server."""
    package = machine.letta()
    if package is None:
        note = "not installed here, and not needed"
    elif package.is_server:
        note = "the retired server: it receives no fixes any more; Kelpie takes its place on the same port"
    else:
        note = "not a server: later versions of this package are a command line for another service"
    return {
        "version": package.version if package else None,
        "server": bool(package and package.is_server),
        "note": note,
    }


def _print(told: dict[str, Any]) -> None:
    print(told["system"])
    _heading("Settings")
    chosen = told["settings"]
    print(f"file: {chosen['file'] or 'none'}")
    rows = [(row["key"], row["value"], row["origin"]) for row in chosen["set"]]
    print_rows(("setting", "value", "origin"), rows, "Everything is at its default.")
    if chosen["ignored"]:
        print(f"set, but not used by Kelpie: {', '.join(chosen['ignored'])}")
    _heading("Server and models")
    _print_server(told["server"])
    _heading("Isolation")
    print(told["isolation"]["note"])
    print_rows(
        ("", "there", "seen"), [(each["name"], each["present"], each["seen"]) for each in told["isolation"]["machine"]]
    )
    _heading("The package letta")
    version = told["letta"]["version"]
    print(f"{version}: {told['letta']['note']}" if version else told["letta"]["note"])


def _print_server(told: dict[str, Any]) -> None:
    if told["error"]:
        print(f"{told['error']}. `kelpie server start` starts one; only it can say which models there are.")
        return
    print(f"Kelpie {told['version']} answers at {told['url']}.")
    providers = told["providers"]
    print_rows(
        ("provider", "server", "address", "models", "hidden", "trouble"),
        [
            (each["name"], each["server"], each["endpoint"], len(each["models"]), len(each["hidden"]), _trouble(each))
            for each in providers
        ],
    )
    models = [
        (model["handle"], model["context_window"], abilities(model)) for each in providers for model in each["models"]
    ]
    print()
    print_rows(("model", "context window", "abilities"), models, "No provider offers a model.")
    hidden = [(f"{each['name']}/{model['name']}", model["reason"]) for each in providers for model in each["hidden"]]
    if hidden:
        print()
        print_rows(("hidden model", "why"), hidden)
    if told["absent"]:
        print()
        print_rows(("not set up", "remedy"), [(each["name"], each["remedy"]) for each in told["absent"]])


def _trouble(provider: dict[str, Any]) -> str | None:
    words = (provider["error"], provider["detail"], provider["hint"])
    return ". ".join(word.rstrip(".") for word in words if word) or None


def _heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
    sys.stderr.flush()
