"""`kelpie tools`: the tools, their usage, and the tool policy of the organization."""

from typing import Annotated

import typer

from kelpie.cli import permission_options as options
from kelpie.cli.commands.tools import tool_changes
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group
from kelpie.cli.output import print_facts, print_json, print_list, print_rows

commands = group(
    "List, add, show, attach, run and delete tools, show their usage, and set the tool policy.",
    "tools list",
    "tools add dice.py",
    "tools usage",
    "tools policy --deny capability:network",
)


@commands.command("list", epilog=examples("tools list", "tools list --json"))
def list_tools(limit: Limit = 200, as_json: AsJson = False, url: Url = None) -> None:
    """List tools, their capabilities and whether they are allowed."""
    found = client(url).get("/v1/kelpie/tools", limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], each["kind"], each["capabilities"], "yes" if each["permitted"] else "no", each["reason"])
        for each in sorted(found, key=lambda each: (each["kind"], each["name"]))
    ]
    print_rows(("tool", "kind", "capabilities", "allowed", "reason"), rows, "No tools.")


@commands.command(epilog=examples("tools usage", "tools usage --hours 168"))
def usage(
    hours: Annotated[int, typer.Option(min=1, max=24 * 365, help="How many hours to look back.")] = 24,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show the calls, errors and times of each tool."""
    found = client(url).get("/v1/kelpie/tools/usage", hours=hours)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["tool"],
            each["kind"],
            each["calls"],
            each["errors"],
            each["refused"],
            f"{each['duration_ms_mean']:.1f} ms",
            f"{each['duration_ms_max']:.1f} ms",
            f"{each['cpu_ms'] / 1000:.1f} s",
            each["last_at"],
        )
        for each in found
    ]
    columns = ("tool", "kind", "calls", "errors", "refused", "mean time", "max time", "CPU time", "last call")
    print_list(columns, rows, "No tool calls.", spare=("CPU time", "max time", "refused", "kind"))


@commands.command(epilog=examples("tools policy", "tools policy --deny capability:network", "tools policy --clear"))
def policy(
    allow: options.Allow = None,
    deny: options.Deny = None,
    tool_calls: options.ToolCalls = None,
    tokens: options.Tokens = None,
    cpu_seconds: options.CpuSeconds = None,
    memory_mb: options.MemoryMb = None,
    timeout: options.Timeout = None,
    cpu_share: options.CpuShare = None,
    processes: options.Processes = None,
    output_mb: options.OutputMb = None,
    scratch_mb: options.ScratchMb = None,
    clear: options.Clear = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show or set the tool policy for all agents of the organization."""
    server, permits = client(url), options.permits(allow, deny)
    limits = options.limits(
        tool_calls_per_hour=tool_calls,
        tokens_per_hour=tokens,
        cpu_seconds_per_hour=cpu_seconds,
        memory_mb=memory_mb,
        timeout_s=timeout,
        cpu_share=cpu_share,
        processes=processes,
        output_mb=output_mb,
        scratch_mb=scratch_mb,
    )
    options.check_clear(clear, permits, limits)
    if clear or permits is not None or limits is not None:
        shown = server.put("/v1/kelpie/policy", {"permissions": permits or {}, "limits": limits or {}})
    else:
        shown = server.get("/v1/kelpie/policy")
    if as_json:
        print_json(shown)
        return
    print_facts(
        {
            "allowed": options.permits_line(shown["permissions"]),
            "limits": options.limits_line(shown["limits"]),
            "allowed by the server": options.permits_line(shown["server"]["permissions"]),
            "server limits": options.limits_line(shown["server"]["limits"]),
        }
    )


tool_changes.register(commands)
