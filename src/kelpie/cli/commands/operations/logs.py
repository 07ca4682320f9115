"""`kelpie logs`: the log of the background server, read from its data directory."""

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import say
from kelpie.cli.server.discovery import LOG_FILE
from kelpie.core.printable_text import escaped, escaped_json
from kelpie.core.settings.settings import Settings
from kelpie.observe.log_lines import as_text
from kelpie.world.files.data_dir import absolute_path
from kelpie.world.files.log_tail import LogTail


class Level(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def logs(settings: Settings, count: int, *, follow: bool, level: Level, as_json: bool) -> int:
    """Prints the last lines, and with `follow` those to come until Ctrl-C. Returns the exit code."""
    path = absolute_path(settings.data_dir) / LOG_FILE
    try:
        tail = LogTail(path)
        last = tail.last(count)
        if not last and not follow:
            say(f"No log file at {path}. A server in the foreground logs to its terminal.", file=sys.stderr)
        _print(last, level, as_json)
        if follow:
            _print(tail.added(), level, as_json)
    except KeyboardInterrupt:
        return OK
    except OSError as error:
        say(f"kelpie: {path} cannot be read: {error.strerror}", file=sys.stderr)
        return ERROR
    return OK


def _print(lines: Iterable[str], level: Level, as_json: bool) -> None:
    levels = list(Level)
    wanted = levels[levels.index(level) :]
    for line in lines:
        event = _event(line)
        if event is None or event["level"] in wanted:
            if event is None:
                say(escaped(line), flush=True)
            else:
                say(escaped_json(line) if as_json else as_text(None, "", event), flush=True)


def _event(line: str) -> dict[str, Any] | None:
    """Returns the event of a line, or None if the logger did not write it."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"time", "level", "event"} <= event.keys() else None
