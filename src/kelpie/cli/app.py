"""The `kelpie` commands with their options, help and examples. The modules they call do the work.

A command imports what only it needs: `kelpie agents list` should not wait for the sandbox or the simulation.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kelpie import __version__
from kelpie.cli.commands import models as model_commands
from kelpie.cli.commands import tools as tool_commands
from kelpie.cli.commands.agents import agents as agent_commands
from kelpie.cli.commands.conversations import approvals as approval_commands
from kelpie.cli.commands.conversations import messages as message_commands
from kelpie.cli.commands.conversations import runs as run_commands
from kelpie.cli.commands.memory import blocks as block_commands
from kelpie.cli.commands.memory import passages as passage_commands
from kelpie.cli.commands.operations import config as config_commands
from kelpie.cli.commands.operations import keys as key_commands
from kelpie.cli.commands.operations import logs as log_command
from kelpie.cli.commands.operations import secrets as secret_commands
from kelpie.cli.exit_codes import NOT_FOUND, NOT_RUNNING, OK
from kelpie.cli.id_lookup import UnknownId
from kelpie.cli.options import MARKUP, AsJson, Assign, MaybeAgent, Url, as_environment, client, examples, flags, group
from kelpie.cli.output import say
from kelpie.core.errors import ConfigurationError
from kelpie.world.files.data_dir import absolute_path
from kelpie.world.files.settings_file import VARIABLE, check_exposure, load
from kelpie.world.http.cli_client import ErrorResponse, Unreachable

NOT_FOUND_STATUS = 404  # over HTTP

kelpie = typer.Typer(
    help="Server and command line for stateful LLM agents with memory and tools.",
    epilog=examples("server start", "demo", "chat demo", "config show", "doctor"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
)
server = group("Start, stop and check the server.", "server start", "server status", "server stop")
simulation = group(
    "Test the server in simulated time with injected faults.",
    "sim list",
    "sim search --seeds 1..20",
)
kelpie.add_typer(server, name="server")
kelpie.add_typer(agent_commands.commands, name="agents")
kelpie.add_typer(block_commands.commands, name="blocks")
kelpie.add_typer(passage_commands.commands, name="passages")
kelpie.add_typer(message_commands.commands, name="messages")
kelpie.add_typer(approval_commands.commands, name="approvals")
kelpie.add_typer(run_commands.commands, name="runs")
kelpie.add_typer(tool_commands.commands, name="tools")
kelpie.add_typer(model_commands.commands, name="models")
kelpie.add_typer(key_commands.commands, name="keys")
kelpie.add_typer(secret_commands.commands, name="secrets")
kelpie.add_typer(config_commands.commands, name="config")
kelpie.add_typer(simulation, name="sim")


def app(arguments: Sequence[str]) -> int:
    """Parses the arguments, runs the command and returns its exit code. Raises KelpieError."""
    try:
        kelpie(list(arguments), prog_name="kelpie")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else OK
    except Unreachable as error:
        return _report_error(error, NOT_RUNNING)
    except UnknownId as error:
        return _report_error(error, NOT_FOUND)
    except ErrorResponse as error:
        if error.status != NOT_FOUND_STATUS:
            raise
        return _report_error(error, NOT_FOUND)
    return OK


def _report_error(error: Exception, code: int) -> int:
    say(f"kelpie: {error}", file=sys.stderr)
    return code


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@kelpie.callback()
def settings_of_all(
    config: Annotated[str | None, typer.Option(help="Settings file (KELPIE_CONFIG).")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Data directory of the server (KELPIE_DATA_DIR).")] = None,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    # Settings are read from the environment, by this process and by those it starts.
    if config is not None:
        os.environ[VARIABLE] = config
    if data_dir is not None:
        os.environ |= as_environment(flags({"data_dir": data_dir}))


@kelpie.command(epilog=examples("version"))
def version() -> None:
    """Show the version."""
    say(f"kelpie {__version__}")


@server.command(epilog=examples("server start", "server start --port 9000 --set agents.block_limit=5000"))
def start(
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground and log to the terminal.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on (KELPIE_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (KELPIE_PORT).")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Data directory (KELPIE_DATA_DIR).")] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Require a password even on a loopback address (KELPIE_SERVER_SECURE).")
    ] = False,
    config: Annotated[str | None, typer.Option(help="Settings file (KELPIE_CONFIG).")] = None,
    assign: Assign = None,
) -> None:
    """Start the server in the background and wait until it is ready."""
    named = {"host": host, "port": port, "data_dir": data_dir, "secure": "true" if secure else None}
    given = flags(named, assign or ())
    if foreground:
        from kelpie.cli.server.process import serve_here

        raise typer.Exit(serve_here(given, config))
    from kelpie.cli.server import control

    found = load(given, config)
    check_exposure(found, config)
    os.environ |= as_environment(given)
    if found.file is not None:
        os.environ[VARIABLE] = found.file
        say(f"Settings file: {found.file}", file=sys.stderr)
    try:
        raise typer.Exit(control.start(found.settings))
    except ConfigurationError as error:
        raise found.located(error) from error


@server.command(epilog=examples("server stop"))
def stop() -> None:
    """Stop the server after running turns have finished."""
    from kelpie.cli.server import control

    raise typer.Exit(control.stop(load().settings))


@server.command(epilog=examples("server status || kelpie server start", "server status --json"))
def status(as_json: AsJson = False) -> None:
    """Show whether the server is running. Exits with 0 if it is, with 3 if not."""
    from kelpie.cli.server import status

    raise typer.Exit(status.status(as_json=as_json))


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
def demo(url: Url = None) -> None:
    """Create the agent 'demo', if missing, and show what to try."""
    from kelpie.cli.commands import demo

    raise typer.Exit(demo.demo(client(url)))


@kelpie.command(epilog=examples("doctor", "doctor --json", "doctor --isolation"))
def doctor(
    isolation: Annotated[
        bool, typer.Option("--isolation", help="Only test the isolation of the sandbox on this machine.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Check settings, server, models and machine. Exits with 1 if a problem was found."""
    from kelpie.cli.commands.operations import doctor, doctor_isolation

    if isolation:
        raise typer.Exit(doctor_isolation.isolation_only(as_json=as_json))
    raise typer.Exit(doctor.doctor(load(), url, as_json=as_json))


@kelpie.command(epilog=examples("logs", "logs --follow", "logs -n 500 --level warning --json"))
def logs(
    count: Annotated[int, typer.Option("-n", min=0, max=100_000, help="Number of lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
    level: Annotated[log_command.Level, typer.Option(help="Minimum level to show.")] = log_command.Level.debug,
    as_json: AsJson = False,
) -> None:
    """Show the log of the background server."""
    raise typer.Exit(log_command.logs(load().settings, count, follow=follow, level=level, as_json=as_json))


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
