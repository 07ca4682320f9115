"""The details of the doctor's report, as `kelpie doctor -v` prints them."""

import sys
from typing import Any

from kelpie.cli.commands.models import abilities, problem_of
from kelpie.cli.commands.operations.doctor_isolation import print_isolation
from kelpie.cli.output import print_rows, say


def print_details(told: dict[str, Any]) -> None:
    """Prints all that the doctor looked at, section by section."""
    say()
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
            (each["name"], each["server"], each["endpoint"], len(each["models"]), len(each["hidden"]), problem_of(each))
            for each in providers
        ],
    )
    for each in providers:
        if each.get("found"):
            say(f"{each['server']} was found at {each['endpoint']}. Set {each['setting']} to use it beside others.")
    for each in told["nearby"]:
        say(f"{each['server']} answers at {each['url']} and is not in use. Set {each['setting']} to use it.")
    models = [
        (model["handle"], model["context_window"], abilities(model)) for each in providers for model in each["models"]
    ]
    say()
    print_rows(("model", "context window", "abilities"), models, "No models are available.")
    hidden = [(f"{each['name']}/{model['name']}", model["reason"]) for each in providers for model in each["hidden"]]
    if hidden:
        say()
        print_rows(("hidden model", "reason"), hidden)
    _print_default(told["default_model"])
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


def _print_default(told: dict[str, Any] | None) -> None:
    if told is None:  # an older server
        return
    why = f" ({told['reason'].rstrip('.')})" if told["reason"] else ""
    say(f"\nDefault model of new agents: {told['handle'] or 'none'}{why}.")


def _print_embedding(told: dict[str, Any] | None) -> None:
    if told is None:  # an older server
        return
    if told["model"]:
        say(f"\nMemory search uses full text and vectors (embedding model {told['model']}).")
    else:
        say(f"\nMemory search uses full text only: {told['remedy']}.")


def _heading(text: str) -> None:
    say(f"\n{text}\n{'-' * len(text)}", flush=True)
    sys.stderr.flush()
