"""The `kelpie` commands with their options, help and examples. The modules they call do the work.

A command imports what only it needs: `kelpie agents list` should not wait for the sandbox or the simulation.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kelpie import __version__
from kelpie.cli.agent_lookup import find
from kelpie.cli.command_line import Commands, Group, usage_error
from kelpie.cli.commands import models as model_commands
from kelpie.cli.commands import providers as provider_commands
from kelpie.cli.commands.agents import agents as agent_commands
from kelpie.cli.commands.agents import projects as project_commands
from kelpie.cli.commands.agents import templates as template_commands
from kelpie.cli.commands.conversations import approvals as approval_commands
from kelpie.cli.commands.conversations import batches as batch_commands
from kelpie.cli.commands.conversations import messages as message_commands
from kelpie.cli.commands.conversations import runs as run_commands
from kelpie.cli.commands.files import files as file_commands
from kelpie.cli.commands.files import folders as folder_commands
from kelpie.cli.commands.memory import blocks as block_commands
from kelpie.cli.commands.memory import passages as passage_commands
from kelpie.cli.commands.operations import config as config_commands
from kelpie.cli.commands.operations import keys as key_commands
from kelpie.cli.commands.operations import logs as log_command
from kelpie.cli.commands.operations import quotas as quota_command
from kelpie.cli.commands.operations import secrets as secret_commands
from kelpie.cli.commands.operations import server as server_commands
from kelpie.cli.commands.tools import mcp as mcp_commands
from kelpie.cli.commands.tools import tools as tool_commands
from kelpie.cli.commands.triggers import hooks as hook_commands
from kelpie.cli.commands.triggers import schedules as schedule_commands
from kelpie.cli.exit_codes import ERROR, NOT_FOUND, NOT_RUNNING, OK, USAGE
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import (
    MARKUP,
    AsJson,
    MaybeAgent,
    Url,
    as_environment,
    client,
    examples,
    flags,
    group,
    url_before_command,
)
from kelpie.cli.output import say
from kelpie.cli.server.readable_settings import readable_settings
from kelpie.world.files.data_dir import absolute_path
from kelpie.world.files.settings_file import VARIABLE, load, load_readable
from kelpie.world.http.cli_client import ErrorResponse, Unreachable

NOT_FOUND_STATUS = 404  # over HTTP

kelpie = Commands(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Server and command line for stateful LLM agents with memory and tools.",
    epilog=examples("server start", "demo", "chat demo", "config show", "doctor"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
)
simulation = group(
    "Test the server in simulated time with injected faults.",
    "sim list",
    "sim search --seeds 1..20",
)
kelpie.add_typer(server_commands.commands, name="server")
kelpie.add_typer(agent_commands.commands, name="agents")
kelpie.add_typer(template_commands.commands, name="templates")
kelpie.add_typer(project_commands.commands, name="projects")
kelpie.add_typer(block_commands.commands, name="blocks")
kelpie.add_typer(passage_commands.commands, name="passages")
kelpie.add_typer(folder_commands.commands, name="folders")
kelpie.add_typer(file_commands.commands, name="files")
kelpie.add_typer(message_commands.commands, name="messages")
kelpie.add_typer(approval_commands.commands, name="approvals")
kelpie.add_typer(run_commands.commands, name="runs")
kelpie.add_typer(batch_commands.commands, name="batches")
kelpie.add_typer(schedule_commands.commands, name="schedules")
kelpie.add_typer(hook_commands.commands, name="hooks")
kelpie.add_typer(tool_commands.commands, name="tools")
kelpie.add_typer(mcp_commands.commands, name="mcp")
kelpie.add_typer(model_commands.commands, name="models")
kelpie.add_typer(provider_commands.commands, name="providers")
kelpie.add_typer(key_commands.commands, name="keys")
kelpie.add_typer(secret_commands.commands, name="secrets")
kelpie.add_typer(config_commands.commands, name="config")
kelpie.add_typer(simulation, name="sim")


def app(arguments: Sequence[str]) -> int:
    """Parses the arguments, runs the command and returns its exit code. Raises KelpieError."""
    try:
        code = kelpie(list(arguments), prog_name="kelpie", standalone_mode=False)
    except typer.Abort:
        say("Aborted.", file=sys.stderr)
        return ERROR
    except typer.TyperException as error:
        say(f"kelpie: {usage_error(error)}", file=sys.stderr)
        return USAGE
    except SystemExit as exit_:
        if isinstance(exit_.__context__, BrokenPipeError):
            return OK  # the reader of a pipe, such as `head`, has read enough
        return exit_.code if isinstance(exit_.code, int) else OK
    except Unreachable as error:
        return _report_error(error, NOT_RUNNING)
    except UnknownId as error:
        return _report_error(error, NOT_FOUND)
    except ErrorResponse as error:
        if error.status != NOT_FOUND_STATUS:
            raise
        return _report_error(error, NOT_FOUND)
    return code if isinstance(code, int) else OK


def _report_error(error: Exception, code: int) -> int:
    say(f"kelpie: {error}", file=sys.stderr)
    return code


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@kelpie.callback()
def settings_of_all(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="Settings file (KELPIE_CONFIG).")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Data directory of the server (KELPIE_DATA_DIR).")] = None,
    url: Url = None,
    show_version: Annotated[
        bool, typer.Option("--version", "-v", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    url_before_command.set(url)
    # Settings are read from the environment, by this process and by those it starts.
    if config is not None:
        os.environ[VARIABLE] = config
    if data_dir is not None:
        os.environ |= as_environment(flags({"data_dir": data_dir}))


@kelpie.command(epilog=examples("version"))
def version() -> None:
    """Show the version."""
    say(f"kelpie {__version__}")


@kelpie.command(epilog=examples("chat demo", "chat", "chat demo -m 'Hello!' --json", "chat demo < questions.txt"))
def chat(
    agent: MaybeAgent = None,
    message: Annotated[str | None, typer.Option("--message", "-m", help="Send this message and exit.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation.")] = False,
    conversation: Annotated[
        str | None, typer.Option(help="Continue this conversation (id or its first characters).")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Chat with an agent, at a prompt or from a pipe. Without a name it is the newest agent."""
    from kelpie.cli.commands.conversations import chat

    if new and conversation:
        raise typer.BadParameter("--new and --conversation exclude each other")
    code = chat.chat(
        client(url),
        agent,
        message,
        absolute_path(load().settings.data_dir),
        new=new,
        conversation_id=conversation,
        as_json=as_json,
    )
    raise typer.Exit(code)


@kelpie.command(epilog=examples("demo"))
def demo(context: typer.Context, url: Url = None) -> None:
    """Create the agent 'demo', if missing, and show what to try."""
    from kelpie.cli.commands import demo

    given = context.parent.params if context.parent is not None else {}
    raise typer.Exit(demo.demo(client(url), {**given, "url": url or given.get("url")}))


@kelpie.command("open", epilog=examples("open", "open demo"))
def open_dashboard(agent: MaybeAgent = None, url: Url = None) -> None:
    """Open the dashboard in the web browser and print its address. With an agent, open the chat with it."""
    from kelpie.cli.commands import dashboard

    raise typer.Exit(dashboard.open_dashboard(client(url), agent))


@kelpie.command(epilog=examples("doctor", "doctor -v", "doctor --isolation"))
def doctor(
    isolation: Annotated[
        bool, typer.Option("--isolation", help="Only test the isolation of the sandbox on this machine.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the details of every check.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Check settings, server, models and machine. Exits with 1 if a problem was found."""
    from kelpie.cli.commands.operations import doctor, doctor_isolation

    if isolation:
        raise typer.Exit(doctor_isolation.isolation_only(as_json=as_json))
    found, wrong = load_readable()
    url = url or url_before_command.get()
    raise typer.Exit(doctor.doctor(found, wrong, url, as_json=as_json, verbose=verbose))


@kelpie.command(epilog=examples("logs", "logs --follow --agent demo", "logs -n 500 --level warning --json"))
def logs(
    count: Annotated[int, typer.Option("-n", min=0, max=100_000, help="Number of lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
    level: Annotated[log_command.Level, typer.Option(help="Minimum level to show.")] = log_command.Level.debug,
    agent: Annotated[str | None, typer.Option(help="Show only lines about this agent (name or id).")] = None,
    run: Annotated[str | None, typer.Option(help="Show only lines about this run (its id or the start of it).")] = None,
    request: Annotated[str | None, typer.Option(help="Show only lines of the request with this id.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show the log of the background server."""
    who = find(client(url), agent)["id"] if agent is not None and not agent.startswith("agent-") else agent
    wanted = log_command.Filter(level, tuple(each for each in (who, run, request) if each))
    raise typer.Exit(log_command.logs(readable_settings(), count, wanted, follow=follow, as_json=as_json))


@kelpie.command(epilog=examples("quotas", "quotas --json"))
def quotas(
    organization: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of another organization; for the operator.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show the quotas of the organization and how much of them is used."""
    quota_command.quotas(client(url), organization, as_json=as_json)


@simulation.command("run", epilog=examples("sim run --scenario many-agents --seed 7"))
def sim_run(
    scenario: Annotated[str, typer.Option(help="Name of the scenario; see `kelpie sim list`.")],
    seed: Annotated[int, typer.Option(help="Seed of the run. The same seed gives the same run.")],
    events: Annotated[int, typer.Option(help="Number of last events to print.")] = 25,
    as_json: AsJson = False,
) -> None:
    """Run one seed of a scenario. Exits with 1 if an invariant broke.

    Prints the trace hash, the last events and the broken invariant, if any.
    """
    from kelpie.cli.commands import sim

    raise typer.Exit(sim.run(scenario, seed, events=events, as_json=as_json))


@simulation.command("search", epilog=examples("sim search --seeds 1..20 --scenario many-agents"))
def sim_search(
    seeds: Annotated[str, typer.Option(help="Range of seeds, `A..B`, both included.")],
    scenario: Annotated[list[str] | None, typer.Option(help="Run only this scenario (repeatable).")] = None,
    broken_max: Annotated[int, typer.Option(help="Leave a scenario after this many broken seeds.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Run many seeds. Exits with 1 if an invariant broke or a fault never fired."""
    from kelpie.cli.commands import sim

    raise typer.Exit(sim.search_seeds(scenario or [], seeds, broken_max=broken_max, as_json=as_json))


@simulation.command("list", epilog=examples("sim list"))
def sim_list(as_json: AsJson = False) -> None:
    """List the scenarios and the faults that each injects."""
    from kelpie.cli.commands import sim

    raise typer.Exit(sim.list_scenarios(as_json=as_json))
