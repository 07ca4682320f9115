"""`kelpie runs`: list, show and cancel runs."""

from typing import Annotated, Any

import typer

from kelpie.cli import budget_text
from kelpie.cli.agent_lookup import find, names_of
from kelpie.cli.cancel_report import print_cancelled
from kelpie.cli.chat.message_text import message_text
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import print_facts, print_json, print_list, print_rows, say
from kelpie.world.http.cli_client import Client

commands = group(
    "List, show and cancel runs. Every turn of an agent is a run.", "runs list --agent demo", "runs list --active"
)

Run = Annotated[str, typer.Argument(help="Run id or its first characters; see `kelpie runs list`.")]


@commands.command("list", epilog=examples("runs list", "runs list --agent demo --active --json"))
def list_runs(
    agent: Annotated[str | None, typer.Option(help="Show only runs of this agent (name or id).")] = None,
    active: Annotated[bool, typer.Option("--active", help="Show only unfinished runs.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List runs, newest first."""
    server = client(url)
    query: dict[str, Any] = {"limit": limit}
    query |= {"agent_id": find(server, agent)["id"]} if agent else {}
    query |= {"active": "true"} if active else {}
    found = server.get("/v1/runs/", **query)
    if as_json:
        print_json(found)
        return
    names = names_of(server, [each["agent_id"] for each in found])
    rows = [
        (each["id"], names.get(each["agent_id"], each["agent_id"]), each["status"], each["stop_reason"],
         each["created_at"], _seconds(each), budget_text.dollars(each["kelpie_cost_usd"]))
        for each in found
    ]  # fmt: skip
    columns = ("id", "agent", "status", "stop reason", "created", "seconds", "cost")
    print_list(columns, rows, "No runs.", spare=("cost", "seconds", "stop reason"))


@commands.command(epilog=examples("runs show run-...", "runs show run-... --json"))
def show(
    run: Run,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show a run with its steps and messages."""
    server = client(url)
    run = _whole(server, run)
    found = server.get(path("runs", run))
    usage = server.get(path("runs", run, "usage"))
    steps = server.get(path("runs", run, "steps"), order="asc")
    messages = server.get(path("runs", run, "messages"))
    if as_json:
        print_json({**found, "usage": usage, "steps": steps, "messages": messages})
        return
    print_facts(
        {
            "id": found["id"],
            "agent": names_of(server, [found["agent_id"]]).get(found["agent_id"]),
            "agent id": found["agent_id"],
            "status": found["status"],
            "stop reason": found["stop_reason"],
            "created": found["created_at"],
            "completed": found["completed_at"],
            "seconds": _seconds(found),
            "input tokens": usage["prompt_tokens"],
            "output tokens": usage["completion_tokens"],
            "cost": budget_text.dollars(usage["kelpie_cost_usd"]),
        }
    )
    say()
    print_rows(
        ("step", "model", "status", "input tokens", "output tokens", "cost", "error"),
        [
            (each["id"], each["model_handle"], each["status"], each["prompt_tokens"], each["completion_tokens"],
             budget_text.dollars(each["kelpie_cost_usd"]), (each["error_data"] or {}).get("message"))
            for each in steps
        ],
        "No finished steps.",
    )  # fmt: skip
    say()
    print_rows(("message", "text"), [(each["message_type"], message_text(each)) for each in messages], "No messages.")


@commands.command(epilog=examples("runs cancel run-..."))
def cancel(
    run: Run,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Cancel a run. Finished runs are not affected."""
    server = client(url)
    run = _whole(server, run)
    agent_id = server.get(path("runs", run))["agent_id"]
    print_cancelled(server.post(path("agents", agent_id, "messages", "cancel"), {"run_ids": [run]}), as_json)


def _whole(server: Client, run: str) -> str:
    return whole_id(server, "run", run, "run", "`kelpie runs list` lists the runs.")


def _seconds(run: dict[str, Any]) -> str | None:
    duration = run["total_duration_ns"]
    return None if duration is None else f"{duration / 1e9:.2f}"
