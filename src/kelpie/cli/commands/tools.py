"""`kelpie tools`: the registry of tools, how they are used, and what the organisation permits all of its agents."""

from typing import Annotated

import typer

from kelpie.cli import permission_options as options
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group
from kelpie.cli.output import print_facts, print_json, print_rows

commands = group(
    "Look at tools, at how they are used, and at what all agents may use.",
    "tools list",
    "tools usage",
    "tools policy --deny capability:network",
)


@commands.command("list", epilog=examples("tools list", "tools list --json"))
def list_tools(limit: Limit = 200, as_json: AsJson = False, url: Url = None) -> None:
    """List the tools: where each comes from, what it can reach, whether agents may use it."""
    found = client(url).get("/v1/kelpie/tools", limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], each["kind"], each["capabilities"], "yes" if each["permitted"] else "no", each["reason"])
        for each in sorted(found, key=lambda each: (each["kind"], each["name"]))
    ]
    print_rows(("tool", "kind", "capabilities", "permitted", "because"), rows, "There are no tools.")


@commands.command(epilog=examples("tools usage", "tools usage --hours 168"))
def usage(
    hours: Annotated[int, typer.Option(min=1, max=24 * 365, help="How far to look back.")] = 24,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show how often each tool was called, what came of it, and what it took."""
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
    columns = ("tool", "kind", "calls", "errors", "refused", "mean", "longest", "processor", "last")
    print_rows(columns, rows, "No tool was called.")


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
    clear: options.Clear = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show what all agents of the organization may use, or set it."""
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
            "permitted": options.permits_line(shown["permissions"]),
            "limits": options.limits_line(shown["limits"]),
            "by the server's settings": options.permits_line(shown["server"]["permissions"]),
            "limits of the server": options.limits_line(shown["server"]["limits"]),
        }
    )
