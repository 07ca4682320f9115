"""The server process: logs, the application, and HTTP over it, until a signal ends it.

A terminal or systemd runs `serve_here`; `kelpie server start` runs `serve_detached` in the background.
"""

import gc
import os
import sys
from pathlib import Path

from kelpie import __version__
from kelpie.cli.exit_codes import OK
from kelpie.cli.output import say
from kelpie.cli.server.discovery import LOG_FILE, address_of
from kelpie.cli.server.first_password import ensure_password
from kelpie.core.access.hosts import is_loopback
from kelpie.core.errors import ConfigurationError, KelpieError
from kelpie.core.settings.server_record import recorded
from kelpie.core.settings.settings import ResolvedSettings, Settings
from kelpie.core.settings.sources.unknown_variables import SHOWN_MAX, closest, unknown_variables
from kelpie.local import open_kelpie
from kelpie.observe import logs
from kelpie.server.run import run, serve
from kelpie.world.clock import SystemClock
from kelpie.world.files import server_record
from kelpie.world.files.data_dir import DataDir
from kelpie.world.files.log_file import RotatedFile
from kelpie.world.files.server_record import ServerRecord
from kelpie.world.files.settings_file import Flags, check_exposure, load
from kelpie.world.ids import RandomIds
from kelpie.world.open_files import raise_open_files_limit

# A turn that goes well leaves no reference cycle, so the collector finds nothing and only costs: with Python's own
# thresholds it took an eighth of the CPU of 500 turns at once, and stopped all of them for 0.2 s at a time
# (bench/loop.py). A failure does leave cycles, which hold request bodies: the young generation is collected often
# enough for those, the old one hardly ever.
GC_THRESHOLD = (2_000, 10, 50)

# The database writer thread gives the interpreter away with every statement, and waits this long to get it back from a
# busy event loop. With Python's 5 ms the median of 500 turns at once was a third longer on a busy machine.
SWITCH_S = 0.001

OPEN_FILES_FEW = 4096  # below it a server with many clients runs out of connections

_log = logs.get("cli")


def serve_here(flags: Flags | None = None, config: str | None = None) -> int:
    """Serves in the foreground, logging to standard error. Raises KelpieError when it cannot start."""
    found = load(flags, config)
    check_exposure(found, config)
    logs.configure(found.settings.log_level, now=SystemClock().now, human=sys.stderr.isatty())
    return _serve(found, background=False)


def serve_detached() -> int:
    """Serves with the log in the data directory. Raises KelpieError when it cannot start, having logged it."""
    found = load()
    file = RotatedFile(
        DataDir.open(found.settings.data_dir).path / LOG_FILE,
        bytes_max=found.settings.log_bytes_max,
        files_max=found.settings.log_files_max,
    )
    logs.configure(found.settings.log_level, file, now=SystemClock().now)
    try:
        return _serve(found, background=True)
    except KelpieError as error:
        _log.error("server_start_failed", "Server could not start", error=str(error))
        raise


def _serve(found: ResolvedSettings, *, background: bool) -> int:
    settings = found.settings
    for name in unknown_variables(os.environ)[:SHOWN_MAX]:
        _log.warning("unknown_variable", "Environment variable is not a setting", variable=name, closest=closest(name))
    if found.file is not None:
        _log.info("settings_file_loaded", "Settings file loaded", path=found.file)
    try:
        if told := ensure_password(settings):
            say(told, file=sys.stderr, flush=True)
        if not is_loopback(settings.host):
            _log.warning(
                "server_exposed",
                "Other machines can reach this server, and connections are not encrypted",
                host=settings.host,
            )
        open_files = raise_open_files_limit()
        if open_files < OPEN_FILES_FEW:
            _log.warning(
                "open_files_limit_low", "This process may open few files, so few clients can connect", limit=open_files
            )
        kelpie = open_kelpie(settings)

        def listening(host: str, port: int) -> None:
            assert kelpie.data_dir is not None
            _record(kelpie.data_dir.path, settings, background=background)
            kelpie.data_dir.announce(address_of(host, port))
            gc.freeze()  # what the start has made stays for good; walking it again and again would stop everyone
            gc.set_threshold(*GC_THRESHOLD)
            gc.enable()
            sys.setswitchinterval(SWITCH_S)

        run(serve(kelpie, settings, listening))
    except ConfigurationError as error:
        raise found.located(error) from error
    _log.info("server_stopped", "Server stopped")
    return OK


def _record(data_dir: Path, settings: Settings, *, background: bool) -> None:
    """Lets commands compare their settings with those of this server. Raises ConfigurationError."""
    salt = RandomIds().uuid()
    record = ServerRecord(os.getpid(), __version__, background, salt, recorded(settings, salt))
    server_record.write(data_dir, record)
