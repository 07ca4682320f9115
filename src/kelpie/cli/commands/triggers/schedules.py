"""`kelpie schedules`: messages that agents get at a time, or again and again."""

from typing import Annotated, Any

import typer

from kelpie.cli.agent_lookup import find
from kelpie.cli.confirmation import confirm
from kelpie.cli.id_lookup import whole_id
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, say
from kelpie.world.http.cli_client import Client

commands = group(
    "List, add, pause, run and delete schedules, and see how they went.",
    "schedules list",
    'schedules add ada "Write the report." --cron "0 9 * * 1-5" --timezone Europe/Berlin',
    "schedules firings --status dead",
)
Schedule = Annotated[str, typer.Argument(help="Id of the schedule.")]
Cron = Annotated[str | None, typer.Option(help="Cron expression with five fields, for a recurring schedule.")]
At = Annotated[str | None, typer.Option(help="Time (ISO 8601), for a schedule that fires once.")]
Missed = Annotated[str | None, typer.Option(help="What happens to times that were missed: run_once, run_all or skip.")]


@commands.command("list", epilog=examples("schedules list", "schedules list --agent ada --json"))
def list_schedules(
    agent: Annotated[str | None, typer.Option(help="Only those of this agent: name or id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List schedules, newest first."""
    server = client(url)
    if agent is None:
        found: list[dict[str, Any]] = server.get("/v1/kelpie/schedules", limit=limit)
    else:
        base = path("agents", find(server, agent)["id"], "schedule")
        found = server.get(base, limit=limit)["scheduled_messages"]
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["agent_id"], each["status"], _when(each), each["next_scheduled_time"], each["name"])
        for each in found
    ]
    print_list(("id", "agent", "status", "when", "next", "name"), rows, "No schedules.", spare=("name", "agent"))


@commands.command(epilog=examples("schedules show schedule-1a2b3c4d"))
def show(schedule: Schedule, as_json: AsJson = False, url: Url = None) -> None:
    """Show a schedule and its last firings."""
    server = client(url)
    found = _find(server, schedule)
    firings = server.get(path("agents", found["agent_id"], "schedule", found["id"], "firings"), limit=10)
    if as_json:
        print_json(found | {"firings": firings})
        return
    print_facts(
        {
            "id": found["id"],
            "agent": found["agent_id"],
            "name": found["name"],
            "status": found["status"],
            "when": _when(found),
            "next": found["next_scheduled_time"],
            "missed times": found["missed_policy"],
            "messages": "\n".join(str(each["content"]) for each in found["message"]["messages"]),
        }
    )
    _print_firings(firings)


@commands.command(
    epilog=examples(
        'schedules add ada "Write the report." --cron "0 9 * * 1-5" --timezone Europe/Berlin',
        'schedules add ada "Call Bob." --at 2030-05-01T12:00:00Z',
        'schedules add ada "Read the mail." "Now answer it." --cron @hourly',
    )
)
def add(
    agent: Agent,
    messages: Annotated[
        list[str], typer.Argument(help="Messages that the agent gets; several are a batch: a turn each, in order.")
    ],
    cron: Cron = None,
    at: At = None,
    timezone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
    name: Annotated[str | None, typer.Option(help="Name of the schedule.")] = None,
    missed: Missed = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a schedule to an agent."""
    if (cron is None) == (at is None):
        raise typer.BadParameter("give a time with --at, or a cron expression with --cron", param_hint="--cron")
    server = client(url)
    found = find(server, agent)
    times = {"scheduled_time": at} if cron is None else {"recurrence_rule": cron}
    optional = {"name": name, "missed_policy": missed}
    said = [{"role": "user", "content": each} for each in messages]
    body = {"messages": said, "batch": len(said) > 1, "timezone": timezone, **times}
    body |= {field: value for field, value in optional.items() if value is not None}
    made = server.post(path("agents", found["id"], "schedule"), body)
    if as_json:
        print_json(made)
        return
    say(f"Added schedule {made['id']} to agent {cell(found['name'])}. It fires next at {made['next_scheduled_time']}.")


@commands.command(epilog=examples("schedules pause schedule-1a2b3c4d"))
def pause(schedule: Schedule, as_json: AsJson = False, url: Url = None) -> None:
    """Pause a schedule. It fires no more until it is resumed."""
    _change(schedule, {"paused": True}, url, as_json, "Paused schedule {id}.")


@commands.command(epilog=examples("schedules resume schedule-1a2b3c4d"))
def resume(schedule: Schedule, as_json: AsJson = False, url: Url = None) -> None:
    """Resume a paused schedule. Times that passed meanwhile are not made up for."""
    _change(schedule, {"paused": False}, url, as_json, "Resumed schedule {id}. It fires next at {next_scheduled_time}.")


@commands.command(epilog=examples("schedules run schedule-1a2b3c4d"))
def run(schedule: Schedule, as_json: AsJson = False, url: Url = None) -> None:
    """Fire a schedule now, beside its times."""
    server = client(url)
    found = _find(server, schedule)
    made = server.post(path("agents", found["agent_id"], "schedule", found["id"], "run"), {})
    if as_json:
        print_json(made)
        return
    say(f"Queued firing {made['id']} of schedule {found['id']}.")


@commands.command(epilog=examples("schedules delete schedule-1a2b3c4d --yes"))
def delete(
    schedule: Schedule,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a schedule and its history."""
    server = client(url)
    found = _find(server, schedule)
    confirm(f"Delete schedule {found['id']} ({_when(found)})?", "deleting the schedule", yes=yes)
    server.delete(path("agents", found["agent_id"], "schedule", found["id"]))
    say(f"Deleted schedule {found['id']}.")


@commands.command(epilog=examples("schedules firings", "schedules firings --status dead"))
def firings(
    status: Annotated[
        str | None, typer.Option(help="Only these: waiting, running, done, cancelled, skipped or dead.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the firings of all schedules, newest first."""
    query: dict[str, Any] = {"limit": limit} | ({} if status is None else {"status": status})
    found = client(url).get("/v1/kelpie/firings", **query)
    if as_json:
        print_json(found)
        return
    _print_firings(found)


@commands.command(epilog=examples("schedules requeue firing-1a2b3c4d"))
def requeue(
    firing: Annotated[str, typer.Argument(help="Id of a dead firing.")], as_json: AsJson = False, url: Url = None
) -> None:
    """Try a firing again that was given up."""
    server = client(url)
    found = whole_id(server, "firing", firing, "firing", "`kelpie schedules firings` shows them.")
    made = server.post(path("kelpie", "firings", found, "requeue"), {})
    if as_json:
        print_json(made)
        return
    say(f"Queued firing {made['id']} again.")


def _change(schedule: str, body: dict[str, Any], url: str | None, as_json: bool, said: str) -> None:
    server = client(url)
    found = _find(server, schedule)
    after = server.patch(path("agents", found["agent_id"], "schedule", found["id"]), body)
    if as_json:
        print_json(after)
        return
    say(said.format(**after))


def _find(server: Client, schedule: str) -> dict[str, Any]:
    found = whole_id(server, "schedule", schedule, "schedule", "`kelpie schedules list` shows them.")
    return server.get(path("kelpie", "schedules", found))


def _when(schedule: dict[str, Any]) -> str:
    if schedule["recurrence_rule"] is None:
        return str(schedule["scheduled_time"])
    zone = "" if schedule["timezone"] == "UTC" else f" {schedule['timezone']}"
    return f"{schedule['recurrence_rule']}{zone}"


def _print_firings(found: list[dict[str, Any]]) -> None:
    rows = [
        (
            *(each["id"], each["scheduled_time"], each["status"], each["attempts"]),
            *(each["run_id"] or each["batch_id"], each["error"]),
        )
        for each in found
    ]
    columns = ("id", "time", "status", "attempts", "run or batch", "error")
    print_list(columns, rows, "No firings.", spare=("error", "attempts"))
