"""The server process: logs, data directory, the product, and HTTP over it, until a signal ends it.

`serve_here` is what a terminal or systemd runs; `python -m kelpie.cli.serve` is what `kelpie server start` puts into the
background. It imports neither typer nor rich, because a server keeps what it imports for as long as it lives.
"""

import os
import sys

from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.running import ADDRESS, address_of
from kelpie.core.errors import KelpieError
from kelpie.core.settings import Settings
from kelpie.observe import logs
from kelpie.world.clock import SystemClock
from kelpie.world.data_dir import DataDir
from kelpie.world.log_file import RotatedFile

LOG_FILE = "kelpie.log"

_log = logs.get("cli")


def serve_here() -> int:
    """Serves in the foreground, logging to standard error. Raises KelpieError when it cannot start."""
    settings = Settings.from_environment(os.environ)
    logs.configure(settings.log_level, now=SystemClock().now, human=sys.stderr.isatty())
    return _serve(settings, DataDir.prepare(settings.data_dir))


def serve_in_background() -> int:
    """Serves with the log in the data directory. Raises KelpieError when it cannot start."""
    settings = Settings.from_environment(os.environ)
    data_dir = DataDir.prepare(settings.data_dir)
    logs.configure(settings.log_level, RotatedFile(data_dir.path / LOG_FILE), now=SystemClock().now)
    return _serve(settings, data_dir)


def _serve(settings: Settings, data_dir: DataDir) -> int:
    # The logs are configured before the product is imported, so that nothing is said into the void.
    from kelpie.app import open_kelpie
    from kelpie.server.run import run, serve

    kelpie = open_kelpie(settings)  # takes the lock: from here on the small files are ours
    data_dir.write_pid(os.getpid())

    def listening(host: str, port: int) -> None:
        data_dir.write(ADDRESS, address_of(host, port))

    try:
        run(serve(kelpie, settings, listening))
    finally:
        data_dir.remove(ADDRESS)
        data_dir.remove_pid()
    _log.info("stopped")
    return OK


def main() -> int:
    """The background process: what it cannot start for is its last line of output, for `kelpie server start`."""
    try:
        return serve_in_background()
    except KelpieError as error:
        _log.error("the server could not start", error=str(error))
        print(f"kelpie: {error}", file=sys.stderr)
        return ERROR


if __name__ == "__main__":
    sys.exit(main())
