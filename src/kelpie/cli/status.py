"""`kelpie server status`: scripts call it often, so this module and all it imports stay small."""

from kelpie.cli.exit_codes import ERROR, NOT_RUNNING, OK
from kelpie.cli.running import running
from kelpie.world.health import version_at
from kelpie.world.settings_file import load


def status() -> int:
    """Says whether the server of the data directory runs, and returns the exit code. Raises ConfigurationError."""
    settings = load().settings
    server = running(settings)
    if server is None:
        print(f"Kelpie is not running (data directory: {settings.data_dir}).")
        return NOT_RUNNING
    version = version_at(server.url)
    if version is None:
        print(f"Kelpie has process {server.pid} but does not answer at {server.url}.")
        return ERROR
    print(f"Kelpie {version} is running at {server.url} (process {server.pid}).")
    return OK
