"""The server process: logs, the product, and HTTP over it, until a signal ends it.

`serve_here` is what a terminal or systemd runs; `python -m kelpie.cli.serve` is what `kelpie server start` puts into
the background. It imports neither typer nor rich, because a server keeps what it imports for as long as it lives.
"""

import os
import sys

from kelpie.app import open_kelpie
from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.running import address_of
from kelpie.core.errors import KelpieError
from kelpie.core.settings import Settings
from kelpie.observe import logs
from kelpie.server.run import run, serve
from kelpie.world.clock import SystemClock
from kelpie.world.data_dir import DataDir
from kelpie.world.log_file import RotatedFile

LOG_FILE = "kelpie.log"

_log = logs.get("cli")


def serve_here() -> int:
    """Serves in the foreground, logging to standard error. Raises KelpieError when it cannot start."""
    settings = Settings.from_environment(os.environ)
    logs.configure(settings.log_level, now=SystemClock().now, human=sys.stderr.isatty())
    return _serve(settings)


def serve_in_background() -> int:
    """Serves with the log in the data directory. Raises KelpieError when it cannot start."""
    settings = Settings.from_environment(os.environ)
    file = RotatedFile(DataDir.open(settings.data_dir).path / LOG_FILE)
    logs.configure(settings.log_level, file, now=SystemClock().now)
    return _serve(settings)


def _serve(settings: Settings) -> int:
    kelpie = open_kelpie(settings)

    def listening(host: str, port: int) -> None:
        assert kelpie.data_dir is not None
        kelpie.data_dir.announce(address_of(host, port))

    run(serve(kelpie, settings, listening))
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
