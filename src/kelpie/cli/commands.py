"""The commands with their options, help and examples. What they do stands in the modules they call.

The server and the simulation are imported by the commands that need them: `kelpie chat` should not wait for them.
"""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kelpie import __version__
from kelpie.cli import chat as talking
from kelpie.cli import control
from kelpie.cli import demo as trying
from kelpie.cli import status as looking
from kelpie.cli.exit_codes import OK
from kelpie.cli.running import address
from kelpie.core.settings import Settings
from kelpie.world.client import Client

kelpie = typer.Typer(
    help="A server on which stateful LLM agents live, remember and use tools.",
    epilog="Settings come from environment variables; docs/settings.md lists them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
server = typer.Typer(help="Start, stop and look at the server.", no_args_is_help=True, rich_markup_mode="markdown")
kelpie.add_typer(server, name="server")
simulation = typer.Typer(
    help="Play scenarios of the simulation: the whole server in virtual time, with faults.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
kelpie.add_typer(simulation, name="sim")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[
    str | None, typer.Option(help="Address of the server; without it, the server of the data directory is meant.")
]


def app(arguments: Sequence[str]) -> int:
    """Parses the arguments, runs the command and returns its exit code. Raises KelpieError."""
    try:
        kelpie(list(arguments), prog_name="kelpie")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else OK
    return OK


@kelpie.command(epilog="Example: `kelpie version`")
def version() -> None:
    """Show the version."""
    print(f"kelpie {__version__}")


@server.command(epilog="Examples: `kelpie server start`, `kelpie server start --port 9000 --data-dir /var/lib/kelpie`")
def start(
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in the terminal, and log there.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on; like KELPIE_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; like KELPIE_PORT.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Where the data lies; like KELPIE_DATA_DIR.")] = None,
) -> None:
    """Start the server in the background, and wait until it answers."""
    given = {"KELPIE_HOST": host, "KELPIE_PORT": port, "KELPIE_DATA_DIR": data_dir}
    # The environment is where settings live, for this process and for the one it starts.
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    if foreground:
        from kelpie.cli.serve import serve_here

        raise typer.Exit(serve_here())
    raise typer.Exit(control.start(_settings()))


@server.command(epilog="Example: `kelpie server stop`")
def stop() -> None:
    """Stop the server, letting the turns in flight finish first."""
    raise typer.Exit(control.stop(_settings()))


@server.command(epilog="Example: `kelpie server status || kelpie server start`")
def status() -> None:
    """Say whether the server runs: exit code 0 if it does, 3 if not."""
    raise typer.Exit(looking.status())


@kelpie.command(
    epilog="Examples: `kelpie chat demo`, `kelpie chat demo -m 'Hello!'`, `kelpie chat demo < questions.txt`"
)
def chat(
    agent: Annotated[str, typer.Argument(help="Name or id of the agent.")],
    message: Annotated[str | None, typer.Option("--message", "-m", help="Say this and leave.")] = None,
    url: Url = None,
) -> None:
    """Talk with an agent: at the prompt, or line by line from a pipe."""
    raise typer.Exit(talking.chat(_client(url), agent, message))


@kelpie.command(epilog="Example: `kelpie demo`")
def demo(url: Url = None) -> None:
    """Make the agent 'demo' if it is not there, and show what to try."""
    raise typer.Exit(trying.demo(_client(url)))


@simulation.command("run", epilog="Example: `kelpie sim run --scenario many-agents --seed 7`")
def sim_run(
    scenario: Annotated[str, typer.Option(help="Name of the scenario; `kelpie sim list` shows them.")],
    seed: Annotated[int, typer.Option(help="The same seed is the same run.")],
    events: Annotated[int, typer.Option(help="How many of the last events to print.")] = 25,
    as_json: AsJson = False,
) -> None:
    """Play one seed: trace hash, last events, and the invariant that broke; exit code 1 if one did."""
    from kelpie.cli import sim

    raise typer.Exit(sim.run(scenario, seed, events=events, as_json=as_json))


@simulation.command("search", epilog="Example: `kelpie sim search --seeds 1..20 --scenario many-agents`")
def sim_search(
    seeds: Annotated[str, typer.Option(help="Which seeds: `A..B`, both included.")],
    scenario: Annotated[list[str] | None, typer.Option(help="Only this scenario; may be given more than once.")] = None,
    broken_max: Annotated[int, typer.Option(help="Leave a scenario after so many broken seeds.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Play many seeds and print those that break an invariant; exit code 1 if one does or a fault never fired."""
    from kelpie.cli import sim

    raise typer.Exit(sim.look(scenario or [], seeds, broken_max=broken_max, as_json=as_json))


@simulation.command("list", epilog="Example: `kelpie sim list`")
def sim_list(as_json: AsJson = False) -> None:
    """Show the scenarios and the faults each is about."""
    from kelpie.cli import sim

    raise typer.Exit(sim.list_scenarios(as_json=as_json))


def _settings() -> Settings:
    return Settings.from_environment(os.environ)


def _client(url: str | None) -> Client:
    return Client(url or address(_settings()))
