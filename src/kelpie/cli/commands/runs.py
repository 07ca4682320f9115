"""`kelpie runs`: what agents have done, turn by turn."""

from typing import Annotated, Any

import typer

from kelpie.cli import budget_text
from kelpie.cli.agent_lookup import find
from kelpie.cli.cancel_report import print_cancelled
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import print_facts, print_json, print_rows

commands = group("Look at runs: the record of every turn.", "runs list --agent demo", "runs list --active")


@commands.command("list", epilog=examples("runs list", "runs list --agent demo --active --json"))
def list_runs(
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent, by name or id.")] = None,
    active: Annotated[bool, typer.Option("--active", help="Only runs that are not finished.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the runs, the newest first."""
    server = client(url)
    query: dict[str, Any] = {"limit": limit}
    query |= {"agent_id": find(server, agent)["id"]} if agent else {}
    query |= {"active": "true"} if active else {}
    found = server.get("/v1/runs/", **query)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["agent_id"], each["status"], each["stop_reason"], each["created_at"], _seconds(each),
         budget_text.dollars(each["kelpie_cost_usd"]))
        for each in found
    ]  # fmt: skip
    print_rows(("id", "agent", "status", "stopped by", "begun", "seconds", "cost"), rows, "There are no runs.")


@commands.command(epilog=examples("runs show run-...", "runs show run-... --json"))
def show(
    run: Annotated[str, typer.Argument(help="Id of the run; `kelpie runs list` shows them.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show one run: how it ended, its steps and its messages."""
    server = client(url)
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
            "agent": found["agent_id"],
            "status": found["status"],
            "stopped by": found["stop_reason"],
            "begun": found["created_at"],
            "ended": found["completed_at"],
            "seconds": _seconds(found),
            "tokens in": usage["prompt_tokens"],
            "tokens out": usage["completion_tokens"],
            "cost": budget_text.dollars(usage["kelpie_cost_usd"]),
        }
    )
    print()
    print_rows(
        ("step", "model", "status", "tokens in", "tokens out", "cost", "error"),
        [
            (each["id"], each["model_handle"], each["status"], each["prompt_tokens"], each["completion_tokens"],
             budget_text.dollars(each["kelpie_cost_usd"]), (each["error_data"] or {}).get("message"))
            for each in steps
        ],
        "It has no finished step.",
    )  # fmt: skip
    print()
    print_rows(("message", "text"), [(each["message_type"], text_of(each)) for each in messages], "It has no messages.")


@commands.command(epilog=examples("runs cancel run-..."))
def cancel(
    run: Annotated[str, typer.Argument(help="Id of the run; `kelpie runs list --active` shows those under way.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Cancel one run; of one that is over nothing changes."""
    server = client(url)
    agent_id = server.get(path("runs", run))["agent_id"]
    print_cancelled(server.post(path("agents", agent_id, "messages", "cancel"), {"run_ids": [run]}), as_json)


def text_of(message: dict[str, Any]) -> str:
    """The words of a message: what was said, thought, called or returned."""
    if calls := message.get("tool_call"):
        return f"{calls.get('name')} {calls.get('arguments')}"
    if "tool_return" in message:
        return str(message["tool_return"])
    content = message.get("content") or message.get("reasoning") or ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


def _seconds(run: dict[str, Any]) -> str | None:
    duration = run["total_duration_ns"]
    return None if duration is None else f"{duration / 1e9:.2f}"
