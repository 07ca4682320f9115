"""`kelpie models`: list and check the models of the server, pull and remove local ones.

The server does the work: it knows the providers and their keys, this command only asks it.
"""

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from kelpie.cli.exit_codes import ERROR
from kelpie.cli.options import AsJson, Url, client, examples, group
from kelpie.cli.output import cell, print_json, print_rows, say, waiting
from kelpie.core.printable_text import on_one_line
from kelpie.world.http.cli_client import Client, error_sentence

commands = group("List, check, pull and remove models.", "models list", "models check kelpie/demo")

LIST_S = 60.0  # several providers may be asked, each for some seconds
CHECK_S = 660.0  # a large local model may have to be loaded first
SILENCE_S = 300.0  # between two reports of a fetch
PATH = "/v1/kelpie/models"
_ABILITIES = ("tools", "vision", "structured_output", "reasoning", "streaming")

Handle = Annotated[str, typer.Argument(help="Model handle, `provider/model`.")]


@commands.command("list", epilog=examples("models list", "models list --provider ollama --json"))
def list_models(
    provider: Annotated[str | None, typer.Option(help="Show only models of this provider.")] = None,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="List embedding models instead of chat models.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the available models and their abilities."""
    server = client(url, LIST_S)
    found = server.get("/v1/models/embedding" if embeddings else "/v1/models/")
    _name_failures(server, provider)
    chosen = [each for each in found if provider in (None, each["provider_name"])]
    if as_json:
        print_json(chosen)
    elif embeddings:
        print_rows(
            ("handle", "dimensions"),
            [(each["handle"], each["embedding_dim"]) for each in chosen],
            "No embedding models. `kelpie doctor` shows why.",
        )
    else:
        print_rows(
            ("handle", "context window", "abilities"),
            [(each["handle"], each["context_window"], abilities(each)) for each in chosen],
            "No such models. `kelpie doctor` shows why.",
        )


@commands.command(epilog=examples("models check kelpie/demo", "models check ollama/qwen3:8b --json"))
def check(handle: Handle, as_json: AsJson = False, url: Url = None) -> None:
    """Ask a model for one word. Exits with 1 if it does not answer."""
    with waiting(f"Asking {handle} ..."):
        answer = client(url).post(f"{PATH}/check", {"handle": handle}, CHECK_S)
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        say(f"{handle} answered: {cell(answer['answer'])}")
    else:
        say(f"kelpie: {handle} did not answer: {cell(answer['error'])}", file=sys.stderr)
    raise typer.Exit(0 if answer["ok"] else ERROR)


@commands.command(epilog=examples("models pull ollama/qwen3:8b"))
def pull(handle: Handle, url: Url = None) -> None:
    """Pull a model to a local server (Ollama, LocalAI)."""
    heard = client(url).events(f"{PATH}/pull", {"handle": handle}, SILENCE_S)
    events = (event for _, event in heard if event.get("message_type") != "ping")
    trouble = _show_bar(events) if sys.stdout.isatty() else _show_lines(events)
    if trouble:
        say(f"kelpie: {cell(trouble)}", file=sys.stderr)
        raise typer.Exit(ERROR)
    say(f"Pulled {handle}.")


@commands.command(epilog=examples("models remove ollama/qwen3:8b"))
def remove(handle: Handle, url: Url = None) -> None:
    """Remove a model from a local server (Ollama, LocalAI)."""
    client(url).post(f"{PATH}/remove", {"handle": handle}, CHECK_S)
    say(f"Removed {handle}.")


def _name_failures(server: Client, provider: str | None) -> None:
    """Warns of the providers whose models could not be listed, with the remedy."""
    for each in server.get(PATH)["providers"]:
        if each["error"] and provider in (None, each["name"]):
            say(f"kelpie: warning: the models of {each['name']} are missing: {problem_of(each)}.", file=sys.stderr)


def problem_of(provider: dict[str, Any]) -> str | None:
    """The error of a provider with its details and its remedy; None without one."""
    told = {"message": provider["error"], "detail": provider["detail"], "hint": provider["hint"]}
    return on_one_line(error_sentence(told)) if any(told.values()) else None


def abilities(model: dict[str, Any]) -> str:
    """Names the abilities of a model."""
    return ", ".join(name.replace("_", " ") for name in _ABILITIES if model.get(name)) or "-"


def _show_bar(events: Iterable[dict[str, Any]]) -> str | None:
    from kelpie.cli.display.terminal import share

    with share() as show:
        for event in events:
            if trouble := _problem(event):
                return trouble
            show(cell(event["status"]), event["completed"] or 0, event["total"])
        show("", 1, 1)
    return None


def _show_lines(events: Iterable[dict[str, Any]]) -> str | None:
    """Prints a line when the status changes, and one for each tenth of the progress."""
    last = ""
    for event in events:
        if trouble := _problem(event):
            return trouble
        done = f" {event['completed'] * 10 // event['total'] * 10} %" if event["total"] and event["completed"] else ""
        line = f"{cell(event['status'])}{done}"
        if line != last:
            say(line, flush=True)
        last = line
    return None


def _problem(event: dict[str, Any]) -> str | None:
    if event.get("message_type") == "error_message" or "status" not in event:
        return str(event.get("detail") or event.get("message") or "the server could not pull the model")
    return None
