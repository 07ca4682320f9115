"""Start of the server in the background, and its stop."""

import sys

from kelpie.cli.exit_codes import ERROR, NOT_RUNNING, OK
from kelpie.cli.output import say, waiting
from kelpie.cli.server.discovery import running
from kelpie.cli.server.first_password import ensure_password
from kelpie.core.settings.settings import Settings
from kelpie.world.files.data_dir import DataDir
from kelpie.world.http.health_probe import version_at
from kelpie.world.processes.server_process import Child, alive, ask_to_stop, wait_until

OUTPUT = "start.log"  # in the data directory: what a background server prints beside its log
STOP_SPARE_S = 15.0  # beyond the time that turns in flight are given

# -P: Python must not import from the directory in which the command happens to be called.
_SERVER = (sys.executable, "-P", "-m", "kelpie.cli.main", "server", "start", "--detached")


def start(settings: Settings) -> int:
    """Starts the server and waits until it answers; a running one is left alone. Raises ConfigurationError."""
    server = running(settings)
    if server is not None:
        say(f"Kelpie is already running at {server.url} (process {server.pid}).")
        return OK
    if told := ensure_password(settings):  # here and not by the child, whose words end in a file
        say(told, flush=True)
    output = DataDir.open(settings.data_dir).path / OUTPUT
    child = Child(_SERVER, output)
    with waiting("Starting Kelpie ..."):
        answered = wait_until(lambda: child.ended() is not None or _answers(settings, child.pid), settings.start_s)
    if child.ended() is not None:
        say(child.last_line() or f"kelpie: the server exited at once with code {child.ended()}", file=sys.stderr)
        return ERROR
    if not answered:
        ask_to_stop(child.pid)
        say(f"kelpie: the server did not answer within {settings.start_s:.0f} s; see {output}", file=sys.stderr)
        return ERROR
    server = running(settings)
    say(f"Kelpie is running at {server.url if server else '?'} (process {child.pid}).")
    return OK


def _answers(settings: Settings, pid: int) -> bool:
    """True if this very process listens and answers; another server on the same port would answer too."""
    server = running(settings)
    return server is not None and server.pid == pid and version_at(server.url) is not None


def stop(settings: Settings) -> int:
    """Asks the server to stop and waits until it has. Raises ConfigurationError."""
    server = running(settings)
    if server is None:
        say(f"Kelpie is not running (data directory: {settings.data_dir}).")
        return NOT_RUNNING
    try:
        ask_to_stop(server.pid)
    except PermissionError:
        say(f"kelpie: process {server.pid} belongs to another user; ask that user or use sudo", file=sys.stderr)
        return ERROR
    patience_s = settings.drain_s + STOP_SPARE_S
    with waiting("Waiting for running turns to finish ..."):
        gone = wait_until(lambda: not (_holds(settings, server.pid) or alive(server.pid)), patience_s)
    if not gone:
        say(f"kelpie: process {server.pid} is still running after {patience_s:.0f} s", file=sys.stderr)
        return ERROR
    say("Stopped Kelpie.")
    return OK


def _holds(settings: Settings, pid: int) -> bool:
    holder = DataDir.holder(settings.data_dir)
    return holder is not None and holder.pid == pid
