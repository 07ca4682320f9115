"""`kelpie agents permissions`, `limits` and `calls`: permissions, limits and tool calls of an agent."""

from typing import Annotated, Any

import typer

from kelpie.cli import permission_options as options
from kelpie.cli.agent_lookup import find
from kelpie.cli.options import Agent, AsJson, Limit, Url, client, examples, path
from kelpie.cli.output import print_facts, print_json, print_list, print_rows, say
from kelpie.core.permissions.call_records import CallOutcome


def register(commands: typer.Typer) -> None:
    """Adds these commands to the commands of agents."""
    commands.command(epilog=examples("agents permissions ada", "agents permissions ada --deny capability:network"))(
        permissions
    )
    commands.command(epilog=examples("agents limits ada", "agents limits ada --tool-calls 100"))(limits)
    commands.command(epilog=examples("agents calls ada", "agents calls ada --outcome refused"))(calls)


def permissions(
    agent: Agent,
    allow: options.Allow = None,
    deny: options.Deny = None,
    clear: options.Clear = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show or set which tools an agent may use."""
    server, given = client(url), options.permits(allow, deny)
    options.check_clear(clear, given)
    found = find(server, agent)
    if given is not None or clear:
        server.patch(path("agents", found["id"]), {"kelpie_permissions": given})
    shown = server.get(path("agents", found["id"], "permissions"))
    if as_json:
        print_json(shown)
        return
    print_facts({"own permissions": options.permits_line(shown["kelpie_permissions"])})
    say()
    rows = [
        (
            each["name"],
            each["kind"],
            each["capabilities"],
            _yes_or_no(each["permitted"]),
            each["refused_by"],
            each["reason"],
        )
        for each in shown["tools"]
    ]
    print_rows(("tool", "kind", "capabilities", "allowed", "refused by", "reason"), rows, "No tools.")


def limits(
    agent: Agent,
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
    """Show or set the limits of an agent, and show its usage."""
    server = client(url)
    given = options.limits(
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
    options.check_clear(clear, given)
    found = find(server, agent)
    if given is not None or clear:
        server.patch(path("agents", found["id"]), {"kelpie_limits": given})
    shown = server.get(path("agents", found["id"], "limits"))
    if as_json:
        print_json(shown)
        return
    used: dict[str, Any] = shown["used"]
    print_facts(
        {
            "limits": options.limits_line(shown["limits"]),
            "own limits": options.limits_line(shown["layers"]["agent"]),
            "tool calls this hour": used["tool_calls"],
            "tokens this hour": used["tokens"],
            "CPU time this hour": f"{used['cpu_seconds']:g} s",
            "peak memory this hour": f"{used['memory_peak_bytes'] / 1024**2:.1f} MB",
            "limits free up at": shown["frees_at"],
        }
    )


def calls(
    agent: Agent,
    limit: Limit = 50,
    tool: Annotated[str | None, typer.Option(help="Show only calls of this tool.")] = None,
    outcome: Annotated[CallOutcome | None, typer.Option(help="Show only calls with this outcome.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the tool calls of an agent, newest first."""
    server = client(url)
    query: dict[str, Any] = {"limit": limit}
    query |= {"tool": tool} if tool else {}
    query |= {"outcome": outcome.value} if outcome else {}
    shown = server.get(path("agents", find(server, agent)["id"], "tool-calls"), **query)
    if as_json:
        print_json(shown)
        return
    rows = [
        (
            each["created_at"],
            each["tool"],
            f"{each['outcome']}: {each['reason']}" if each["reason"] else each["outcome"],
            f"{each['duration_ms']:.1f} ms",
            f"{each['cpu_ms']:.1f} ms",
            f"{each['memory_peak_bytes'] / 1024**2:.1f} MB",
            each["run_id"],
        )
        for each in shown
    ]
    columns = ("created", "tool", "outcome", "duration", "CPU time", "memory", "run")
    print_list(columns, rows, "No tool calls.", spare=("memory", "CPU time", "run"))


def _yes_or_no(permitted: bool) -> str:
    return "yes" if permitted else "no"
