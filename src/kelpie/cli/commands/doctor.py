"""`kelpie doctor`: a report on the settings, the server, its models and data, and the isolation and package installers
of this machine.

It must never change anything.
"""

import os
import sys
from dataclasses import asdict
from typing import Any

from kelpie.cli.commands.config import described
from kelpie.cli.commands.doctor_isolation import isolation_report, print_isolation
from kelpie.cli.commands.models import abilities
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import print_json, print_rows, say, waiting
from kelpie.cli.server.credential import credential
from kelpie.cli.server.discovery import address
from kelpie.core.errors import KelpieError
from kelpie.core.settings.settings import VARIABLES, ResolvedSettings
from kelpie.core.tools.tools import BUILTIN_NAMES
from kelpie.world import machine
from kelpie.world.http.cli_client import Client
from kelpie.world.packages.installer_report import installer_reports

# Listing models may ask several providers, each for some seconds.
PATIENCE_S = 60.0


def doctor(found: ResolvedSettings, url: str | None, *, as_json: bool) -> int:
    """Prints the report; returns 1 when the server or a provider does not answer, or stored data is damaged."""
    with waiting("Checking the server, its providers and this machine ..."):
        told = {
            "system": machine.system(),
            "settings": settings(found),
            "server": server(url or address(found.settings), credential(found, url)),
            "data": data(url or address(found.settings), credential(found, url)),
            "isolation": isolation_report(),
            "packages": [asdict(each) for each in installer_reports()],
            "letta": letta(),
        }
    if as_json:
        print_json(told)
    else:
        _print(told)
    failing = [each for each in told["server"]["providers"] if each["error"]]
    return ERROR if told["server"]["error"] or failing or told["data"].get("sound") is False else OK


def settings(found: ResolvedSettings) -> dict[str, Any]:
    """The settings in use, with their origin, and variables of Letta that are set and have no effect here."""
    ignored = sorted(name for name in os.environ if name.startswith("LETTA_") and name not in VARIABLES)
    chosen = [row for row in described(found) if row["source"] != "default"]
    return {"file": found.file, "set": chosen, "ignored": ignored}


def server(url: str, shown: str | None) -> dict[str, Any]:
    """The server's report on its providers and models, or the error when it does not answer. `shown` is the key to
    send.
    """
    told: dict[str, Any] = {
        "url": url, "version": None, "error": None, "providers": [], "absent": [], "shadowed_tools": [],
        "embedding": None,
    }  # fmt: skip
    client = Client(url, PATIENCE_S, shown)
    try:
        told["version"] = client.get("/v1/health/").get("kelpie_version")
        told |= client.get("/v1/kelpie/models")
        told["shadowed_tools"] = _shadowed(client)
    except KelpieError as error:
        told["error"] = str(error)
    return told


def _shadowed(client: Client) -> list[dict[str, str]]:
    """Custom tools that have the name of a built-in one, which agents therefore do not get."""
    found = client.get("/v1/tools/", names=BUILTIN_NAMES, tool_types="custom", limit=len(BUILTIN_NAMES))
    remedy = "rename or delete it and restart the server to get the built-in tool of this name"
    return [{"name": each["name"], "id": each["id"], "remedy": remedy} for each in found]


def data(url: str, shown: str | None) -> dict[str, Any]:
    """The server's check of its stored data; the error when it could not be asked."""
    try:
        return {"error": None} | Client(url, PATIENCE_S, shown).get("/v1/kelpie/data")
    except KelpieError as error:
        return {"error": str(error)}


def letta() -> dict[str, Any]:
    """Reports if a package called letta is installed beside Kelpie, and if it is a server."""
    package = machine.letta()
    if package is None:
        note = "not installed (not needed)"
    elif package.is_server:
        note = "the retired Letta server, which gets no more fixes; Kelpie replaces it on the same port"
    else:
        note = "not a server: later versions of this package are a command line for another service"
    return {
        "version": package.version if package else None,
        "server": bool(package and package.is_server),
        "note": note,
    }


def _print(told: dict[str, Any]) -> None:
    say(told["system"])
    _heading("Settings")
    chosen = told["settings"]
    say(f"file: {chosen['file'] or 'none'}")
    rows = [(row["key"], row["value"], row["origin"]) for row in chosen["set"]]
    print_rows(("setting", "value", "origin"), rows, "All settings have their default values.")
    if chosen["ignored"]:
        say(f"set, but not used by Kelpie: {', '.join(chosen['ignored'])}")
    _heading("Server and models")
    _print_server(told["server"])
    _heading("Data")
    _print_data(told["data"])
    _heading("Isolation")
    print_isolation(told["isolation"])
    _heading("Package installers")
    print_rows(
        ("packages", "installer", "version", "remedy"),
        [(each["index"], each["installer"], each["version"], each["remedy"]) for each in told["packages"]],
    )
    _heading("Letta package")
    version = told["letta"]["version"]
    say(f"{version}: {told['letta']['note']}" if version else told["letta"]["note"])


def _print_server(told: dict[str, Any]) -> None:
    if told["error"]:
        say(f"{told['error'].rstrip('.')}. Only a server that answers can list its models.")
        return
    say(f"Kelpie {told['version']} is running at {told['url']}.")
    providers = told["providers"]
    print_rows(
        ("provider", "server", "address", "models", "hidden", "problem"),
        [
            (each["name"], each["server"], each["endpoint"], len(each["models"]), len(each["hidden"]), _problem(each))
            for each in providers
        ],
    )
    models = [
        (model["handle"], model["context_window"], abilities(model)) for each in providers for model in each["models"]
    ]
    say()
    print_rows(("model", "context window", "abilities"), models, "No models are available.")
    hidden = [(f"{each['name']}/{model['name']}", model["reason"]) for each in providers for model in each["hidden"]]
    if hidden:
        say()
        print_rows(("hidden model", "reason"), hidden)
    _print_embedding(told["embedding"])
    if told["shadowed_tools"]:
        say()
        rows = [(each["name"], each["id"], each["remedy"]) for each in told["shadowed_tools"]]
        print_rows(("custom tool that replaces a built-in tool", "id", "remedy"), rows)
    if told["absent"]:
        say()
        print_rows(("provider not configured", "remedy"), [(each["name"], each["remedy"]) for each in told["absent"]])


def _print_data(told: dict[str, Any]) -> None:
    if told["error"]:
        say(f"Stored data could not be checked: {told['error'].rstrip('.')}.")
        return
    looked_at = ", ".join(f"{each['kind']} {each['looked_at']}" for each in told["rows"])
    say(f"Rows checked: {looked_at}.")
    rows = [
        (each["kind"], each["damaged"], f"{each['remedy']} First: {', '.join(each['ids'])}")
        for each in told["rows"]
        if each["damaged"]
    ]
    rows += [(what, count, told["remedy"]) for what, count in told["wrongs"].items()]
    if rows:
        print_rows(("damaged", "count", "remedy"), rows)
    else:
        say("No damage found.")
    if told["unlooked"]:
        say(f"Not checked, for lack of time: {', '.join(told['unlooked'])}.")


def _print_embedding(told: dict[str, Any] | None) -> None:
    if told is None:  # an older server
        return
    if told["model"]:
        say(f"\nMemory search uses full text and vectors (embedding model {told['model']}).")
    else:
        say(f"\nMemory search uses full text only: {told['remedy']}.")


def _problem(provider: dict[str, Any]) -> str | None:
    words = (provider["error"], provider["detail"], provider["hint"])
    return ". ".join(word.rstrip(".") for word in words if word) or None


def _heading(text: str) -> None:
    say(f"\n{text}\n{'-' * len(text)}", flush=True)
    sys.stderr.flush()
