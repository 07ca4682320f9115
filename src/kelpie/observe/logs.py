"""Structured logs: one line per event, with its time in UTC, level, component, code, and its request and run.

Every event has a stable code that operators can alert on; docs/operations.md lists them, and a test compares the list
with the source. Nothing here opens a file or reads a clock: the caller of `configure` passes a sink and a clock. A log
line must never fail the work that it reports; lines that could not be written are counted, and the count is logged.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from kelpie.core.time import Micros
from kelpie.observe.library_logs import LibraryLogHandler
from kelpie.observe.log_lines import as_json, as_text, scrub
from kelpie.observe.recent_lines import RecentLines

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Logger:
    """Logger of one component. An event is a stable snake_case code, a plain sentence, and its facts as keywords.

    The code never changes once released; the sentence may. One code always has the same sentence.
    """

    def __init__(self, component: str) -> None:
        self._component = component

    def debug(self, code: str, event: str, /, **facts: Any) -> None:
        _log("debug", self._component, code, event, facts)

    def info(self, code: str, event: str, /, **facts: Any) -> None:
        _log("info", self._component, code, event, facts)

    def warning(self, code: str, event: str, /, **facts: Any) -> None:
        _log("warning", self._component, code, event, facts)

    def error(self, code: str, event: str, /, **facts: Any) -> None:
        _log("error", self._component, code, event, facts)

    def exception(self, code: str, event: str, /, **facts: Any) -> None:
        """Logs an error with the traceback of the exception being handled."""
        _log("exception", self._component, code, event, facts)


class Sink(Protocol):
    """Destination of log lines: a text stream, or `world.files.log_file.RotatedFile`. One write holds whole lines."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


def get(component: str) -> Logger:
    """Returns the logger of a component. It is cheap enough to be made at import, and follows a later `configure`."""
    return Logger(component)


_facts: ContextVar[Mapping[str, str]] = ContextVar("kelpie_log_facts", default=MappingProxyType({}))


@contextmanager
def bind(**facts: str | None) -> Iterator[None]:
    """Adds these facts to every line logged in this context, e.g. `with bind(request_id=..., run_id=...)`."""
    token = _facts.set({**_facts.get(), **{key: value for key, value in facts.items() if value is not None}})
    try:
        yield
    finally:
        _facts.reset(token)


def configure(
    level: str = "info",
    sink: Sink | None = None,
    *,
    now: Callable[[], Micros] | None = None,
    human: bool = False,
) -> None:
    """Sends lines of this level and above to the sink (default: stderr), as JSON, or as text if `human`."""
    global _lines
    _lines = _Lines(LEVELS[level], _Output(sink), scrub(now), as_text if human else as_json)
    LibraryLogHandler.install(LEVELS[level], _log)


def _log(method: str, component: str, code: str, event: str, facts: Mapping[str, Any]) -> None:
    """Writes the line of an event, unless its level is below the threshold."""
    lines = _lines
    if LEVELS.get(method, logging.ERROR) >= lines.threshold:
        told = {**_facts.get(), **facts, "component": component, "code": code, "event": event}
        scrubbed = lines.scrub(None, method, told)
        text = lines.format(None, method, scrubbed)
        lines.output.line(text)
        recent.add(str(scrubbed["level"]), text if lines.format is as_json else as_json(None, method, scrubbed))


# The sink has just failed, so this line is written beside the logger.
LINES_LOST = {"level": "warning", "code": "log_lines_lost", "event": "Log lines could not be written"}


class _Output:
    """Writer of finished lines. A sink that fails loses lines; it never fails the caller."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._lost = 0

    def line(self, line: str) -> None:
        # sys.stderr is looked up each time: it may be replaced after the logs were configured.
        sink = self._sink or sys.stderr
        note = as_json(None, "warning", {**LINES_LOST, "lost": self._lost}) + "\n" if self._lost else ""
        try:
            sink.write(f"{note}{line}\n")
            sink.flush()
            self._lost = 0
        except (OSError, ValueError):  # a full disk, a closed pipe or a closed file
            self._lost += 1


@dataclass(frozen=True, slots=True)
class _Lines:
    """Where lines go, from which level on, and in which form."""

    threshold: int
    output: _Output
    scrub: Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]
    format: Callable[[Any, str, MutableMapping[str, Any]], str]


recent = RecentLines()  # of this process
_lines = _Lines(logging.WARNING, _Output(None), scrub(None), as_json)  # before `configure`: warnings to stderr
