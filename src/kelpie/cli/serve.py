"""The server process: logs, the product, and HTTP over it, until a signal ends it.

`serve_here` is what a terminal or systemd runs, `serve_detached` what `kelpie server start` puts into the background.
"""

import os
import sys

from kelpie.app import open_kelpie
from kelpie.cli.exit_codes import OK
from kelpie.cli.running import address_of
from kelpie.core.errors import KelpieError
from kelpie.core.settings import Settings
from kelpie.observe import logs
from kelpie.server.run import check_host, run, serve
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


def serve_detached() -> int:
    """Serves with the log in the data directory. Raises KelpieError when it cannot start, having logged it."""
    settings = Settings.from_environment(os.environ)
    file = RotatedFile(DataDir.open(settings.data_dir).path / LOG_FILE)
    logs.configure(settings.log_level, file, now=SystemClock().now)
    try:
        return _serve(settings)
    except KelpieError as error:
        _log.error("the server could not start", error=str(error))
        raise


def _serve(settings: Settings) -> int:
    check_host(settings.host)  # before anything is made on disk
    kelpie = open_kelpie(settings)

    def listening(host: str, port: int) -> None:
        assert kelpie.data_dir is not None
        kelpie.data_dir.announce(address_of(host, port))

    run(serve(kelpie, settings, listening))
    _log.info("stopped")
    return OK
