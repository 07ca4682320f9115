"""`kelpie server`: start, restart, stop and check the server of a data directory."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from kelpie.cli.options import AsJson, Assign, as_environment, examples, flags, group
from kelpie.cli.output import say
from kelpie.cli.server.readable_settings import readable_settings
from kelpie.core.errors import ConfigurationError
from kelpie.world.files.settings_file import VARIABLE, Flags, check_exposure, load

commands = group("Start, restart, stop and check the server.", "server start", "server status", "server stop")

Host = Annotated[str | None, typer.Option(help="Address to listen on (KELPIE_HOST).")]
Port = Annotated[str | None, typer.Option(help="Port to listen on (KELPIE_PORT).")]
OwnDataDir = Annotated[str | None, typer.Option(help="Data directory (KELPIE_DATA_DIR).")]
Secure = Annotated[
    bool, typer.Option("--secure", help="Require a password even on a loopback address (KELPIE_SERVER_SECURE).")
]
Config = Annotated[str | None, typer.Option(help="Settings file (KELPIE_CONFIG).")]


@commands.command(epilog=examples("server start", "server start --port 9000 --set agents.block_limit=5000"))
def start(
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground and log to the terminal.")
    ] = False,
    host: Host = None,
    port: Port = None,
    data_dir: OwnDataDir = None,
    secure: Secure = False,
    config: Config = None,
    assign: Assign = None,
) -> None:
    """Start the server in the background and wait until it is ready."""
    given = _server_flags(host, port, data_dir, secure, assign)
    if foreground:
        from kelpie.cli.server.process import serve_here

        raise typer.Exit(serve_here(given, config))
    _in_background(given, config, again=False)


@commands.command(epilog=examples("server restart", "server restart --port 9000"))
def restart(
    host: Host = None,
    port: Port = None,
    data_dir: OwnDataDir = None,
    secure: Secure = False,
    config: Config = None,
    assign: Assign = None,
) -> None:
    """Stop the server and start it with the current settings."""
    _in_background(_server_flags(host, port, data_dir, secure, assign), config, again=True)


def _server_flags(
    host: str | None, port: str | None, data_dir: str | None, secure: bool, assign: list[str] | None
) -> Flags:
    named = {"host": host, "port": port, "data_dir": data_dir, "secure": "true" if secure else None}
    return flags(named, assign or ())


def _in_background(given: Flags, config: str | None, *, again: bool) -> NoReturn:
    """Starts or restarts the server, which reads its settings from the environment of this process."""
    from kelpie.cli.server import control

    found = load(given, config)
    check_exposure(found, config)
    os.environ |= as_environment(given)
    if found.file is not None:
        os.environ[VARIABLE] = found.file
        say(f"Settings file: {found.file}", file=sys.stderr)
    try:
        raise typer.Exit(control.restart(found) if again else control.start(found))
    except ConfigurationError as error:
        raise found.located(error) from error


@commands.command(epilog=examples("server stop"))
def stop() -> None:
    """Stop the server after running turns have finished."""
    from kelpie.cli.server import control

    raise typer.Exit(control.stop(readable_settings()))


@commands.command("status", epilog=examples("server status || kelpie server start", "server status --json"))
def show_status(as_json: AsJson = False) -> None:
    """Show whether the server is running. Exits with 0 if it is, with 3 if not."""
    from kelpie.cli.server import status

    raise typer.Exit(status.status(as_json=as_json))
