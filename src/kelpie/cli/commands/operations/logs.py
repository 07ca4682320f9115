"""`kelpie logs`: the log of the background server, read from its data directory."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
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


_GRAVER = {level: frozenset(list(Level)[place:]) for place, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines to show: of a level or graver, and of one agent, run or request."""

    level: Level = Level.debug
    ids: tuple[str, ...] = ()  # whole ids or the beginnings of ids; a line must have all of them

    def wants(self, line: str) -> bool:
        """Checks one line; a line that the logger did not write has neither a level nor ids."""
        if not all(each in line for each in self.ids):
            return False
        event = _event(line)
        return not self.ids if event is None else event["level"] in _GRAVER[self.level]


def logs(settings: Settings, count: int, wanted: Filter, *, follow: bool, as_json: bool) -> int:
    """Prints the last lines, and with `follow` those to come until Ctrl-C. Returns the exit code."""
    path = absolute_path(settings.data_dir) / LOG_FILE
    try:
        tail = LogTail(path)
        last = tail.last(count, wanted.wants)
        if not last and not follow:
            say(_nothing(path, wanted) if tail.exists else _no_file(path), file=sys.stderr)
        _print(last, as_json)
        if follow:
            _print((line for line in tail.added() if wanted.wants(line)), as_json)
    except KeyboardInterrupt:
        return OK
    except BrokenPipeError:
        raise  # the reader of the pipe has read enough
    except OSError as error:
        say(f"kelpie: {path} cannot be read: {error.strerror}", file=sys.stderr)
        return ERROR
    return OK


def _nothing(path: Path, wanted: Filter) -> str:
    return f"No such lines in {path}." if wanted != Filter() else f"{path} is empty."


def _no_file(path: Path) -> str:
    return f"No log file at {path}. A server in the foreground logs to its terminal."


def _print(lines: Iterable[str], as_json: bool) -> None:
    for line in lines:
        event = _event(line)
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
