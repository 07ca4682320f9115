"""Start of the server in the background, its stop, and its restart."""

import sys

from kelpie import __version__
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import say, waiting
from kelpie.cli.server.discovery import RunningServer, network_line, network_urls, running
from kelpie.cli.server.first_password import ensure_password
from kelpie.core.settings.server_record import differences
from kelpie.core.settings.settings import ResolvedSettings, Settings
from kelpie.world.files.data_dir import DataDir
from kelpie.world.http.health_probe import version_at
from kelpie.world.processes.server_process import Child, alive, ask_to_stop, wait_until

OUTPUT = "start.log"  # in the data directory: what a background server prints beside its log
STOP_SPARE_S = 15.0  # beyond the time that turns in flight are given
RESTART = "kelpie server restart"

# -P: Python must not import from the directory in which the command happens to be called.
_SERVER = (sys.executable, "-P", "-m", "kelpie.cli.main", "server", "start", "--detached")


def start(found: ResolvedSettings) -> int:
    """Starts the server and waits until it answers. A running one is left alone, and the settings that it lacks are
    named. Raises ConfigurationError."""
    settings = found.settings
    server = running(settings)
    if server is not None:
        say(f"Kelpie is already running at {server.url} (process {server.pid}).")
        if changes := changed(server, found):
            say("It runs with other settings:\n" + _listed(changes), file=sys.stderr)
            say(_remedy(server), file=sys.stderr)
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
    if server is not None and (urls := network_urls(server)) is not None:
        say(network_line(urls))
    return OK


def stop(settings: Settings) -> int:
    """Asks the server to stop and waits until it has; one that does not run is no error. Raises ConfigurationError."""
    server = running(settings)
    if server is None:
        say(f"Kelpie is not running (data directory: {settings.data_dir}).")
        return OK
    if (code := _end(server, settings)) == OK:
        say("Stopped Kelpie.")
    return code


def restart(found: ResolvedSettings) -> int:
    """Stops the server and starts it with these settings; starts it if it does not run. Raises ConfigurationError."""
    server = running(found.settings)
    if server is not None:
        if server.record is not None and not server.record.background:
            say(f"kelpie: {_remedy(server)}", file=sys.stderr)
            return ERROR
        if changes := changed(server, found):
            say("Changed settings:\n" + _listed(changes))
        if (code := _end(server, found.settings)) != OK:
            return code
    code = start(found)
    if code != OK and server is not None:
        say("kelpie: The server was stopped, and it could not start again.", file=sys.stderr)
    return code


def changed(server: RunningServer, found: ResolvedSettings) -> list[str]:
    """What a restart would change: settings, and the version."""
    record = server.record
    if record is None:
        return []
    told = [str(each) for each in differences(record.settings, record.salt, found)]
    if record.version != __version__:
        told.append(f"version: {record.version} in the running server, {__version__} now")
    return told


def _listed(changes: list[str]) -> str:
    return "\n".join(f"  {each}" for each in changes)


def _remedy(server: RunningServer) -> str:
    if server.record is not None and not server.record.background:
        return (
            f"Process {server.pid} runs in the foreground of a terminal or under a service manager; restart it there."
        )
    return f"To apply the current settings, run `{RESTART}`."


def _answers(settings: Settings, pid: int) -> bool:
    """True if this very process listens and answers; another server on the same port would answer too."""
    server = running(settings)
    return server is not None and server.pid == pid and version_at(server.url) is not None


def _end(server: RunningServer, settings: Settings) -> int:
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
    return OK


def _holds(settings: Settings, pid: int) -> bool:
    holder = DataDir.holder(settings.data_dir)
    return holder is not None and holder.pid == pid
