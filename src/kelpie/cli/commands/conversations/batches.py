"""`kelpie batches`: many messages for an agent at once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say
from kelpie.cli.typed_text import STDIN, given_text
from kelpie.world.files import text_file
from kelpie.world.http.cli_client import Client

commands = group(
    "Send batches of messages, see how they went, and cancel them.",
    'batches send ada "First question." "Second question."',
    "batches show job-1a2b3c4d",
)
Batch = Annotated[str, typer.Argument(help="Id of the batch.")]


@commands.command(
    epilog=examples('batches send ada "First question." "Second question."', "batches send ada --file questions.txt")
)
def send(
    agent: Agent,
    messages: Annotated[list[str] | None, typer.Argument(help="Messages, each of which is answered.")] = None,
    file: Annotated[str | None, typer.Option(help="File with one message per line; - reads standard input.")] = None,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Run up to 5 at once, each in a fork of the conversation.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Send up to 100 messages to an agent. They run in the background; `kelpie batches show` tells how they went."""
    texts = [*(messages or ()), *([] if file is None else _lines(file))]
    if not texts:
        raise typer.BadParameter("give messages, or a file with one per line", param_hint="MESSAGES")
    server = client(url)
    found = find(server, agent)
    body = {"messages": texts, "parallel": parallel}
    made = server.post(f"{path('agents', found['id'], 'messages', 'batch')}?background=true", body)
    if as_json:
        print_json(made)
        return
    say(f"Sent batch {made['batch_id']} with {made['total']} messages to agent {cell(found['name'])}.")


@commands.command("list", epilog=examples("batches list", "batches list --active --json"))
def list_batches(
    active: Annotated[bool, typer.Option("--active", help="Only those that have not ended.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List batches, newest first."""
    found: list[dict[str, Any]] = client(url).get("/v1/kelpie/batches", limit=limit, active=active)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["batch_id"], each["agent_id"], each["status"], f"{each['percentage']}%", each["total"], each["failed"])
        for each in found
    ]
    print_list(("id", "agent", "status", "done", "items", "failed"), rows, "No batches.", spare=("agent",))


@commands.command(epilog=examples("batches show job-1a2b3c4d"))
def show(batch: Batch, as_json: AsJson = False, url: Url = None) -> None:
    """Show a batch and the outcome of each item."""
    server = client(url)
    found = server.get(path("kelpie", "batches", _id(server, batch)))
    if as_json:
        print_json(found)
        return
    print_facts(
        {
            "id": found["batch_id"],
            "agent": found["agent_id"],
            "status": found["status"],
            "done": f"{found['percentage']}%",
            "completed": found["completed"],
            "failed": found["failed"],
            "cancelled": found["cancelled"],
        }
    )
    rows = [
        (each["index"], each["status"], each["run_id"], each["error"] or _answer(each)) for each in found["results"]
    ]
    print_list(("item", "status", "run", "answer"), rows, "No items.", spare=("run",))


@commands.command(epilog=examples("batches cancel job-1a2b3c4d"))
def cancel(batch: Batch, as_json: AsJson = False, url: Url = None) -> None:
    """Cancel a batch: its runs are cancelled, and nothing more is sent."""
    server = client(url)
    after = server.post(f"{path('kelpie', 'batches', _id(server, batch))}/cancel", {})
    if as_json:
        print_json(after)
        return
    say(f"Cancelled batch {after['batch_id']}. {after['completed']} of {after['total']} items were completed.")


def _id(server: Client, batch: str) -> str:
    return whole_id(server, "job", batch, "batch", "`kelpie batches list` shows them.")


def _answer(result: dict[str, Any]) -> str:
    texts = [each["content"] for each in result["messages"] if each["message_type"] == "assistant_message"]
    return str(texts[-1]) if texts else ""


def _lines(file: str) -> list[str]:
    text = given_text(file, "--file") if file == STDIN else text_file.read(Path(file), "--file")
    return [line for line in text.splitlines() if line.strip()]
