"""Structured logs: one line an event, with its time in UTC, level, room, and the request and run it belongs to.

Nothing here opens a file or reads a clock: whoever configures the logs gives a sink and a clock. A log line is never
allowed to fail the work that it tells about; lines that could not be written are counted, and the count is logged.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Protocol

import structlog  # noqa: TID251 - everyone else comes here

from kelpie.core.time import Micros
from kelpie.observe.library_logs import LibraryLogHandler
from kelpie.observe.log_lines import as_json, as_text, scrub

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Logger(Protocol):
    """What rooms log with: an event in a few plain words, and its facts as keywords."""

    def debug(self, event: str, **facts: Any) -> None: ...
    def info(self, event: str, **facts: Any) -> None: ...
    def warning(self, event: str, **facts: Any) -> None: ...
    def error(self, event: str, **facts: Any) -> None: ...
    def exception(self, event: str, **facts: Any) -> None:
        """An error with the traceback of the exception being handled."""
        ...


class Sink(Protocol):
    """Where lines go: a text stream, or `world.log_file.RotatedFile`. A whole line, or several, a write."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


def get(room: str) -> Logger:
    """The logger of a room; cheap enough to be made at import, and follows a later `configure`."""
    return structlog.get_logger(room=room)


# One variable for all facts: structlog's own way looks at every context variable of the process at each binding.
_facts: ContextVar[Mapping[str, str]] = ContextVar("kelpie_log_facts", default=MappingProxyType({}))


@contextmanager
def bind(**facts: str | None) -> Iterator[None]:
    """Within this context every line carries these facts, e.g. `with bind(request_id=..., run_id=...)`."""
    token = _facts.set({**_facts.get(), **{key: value for key, value in facts.items() if value is not None}})
    try:
        yield
    finally:
        _facts.reset(token)


def _with_facts(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_facts.get(), **event}


def configure(
    level: str = "info",
    sink: Sink | None = None,
    *,
    now: Callable[[], Micros] | None = None,
    human: bool = False,
) -> None:
    """Sends all lines from this level up to the sink (default: stderr), as JSON or, for people, as text."""
    _configure_ours(LEVELS[level], sink, now, human)
    LibraryLogHandler.install(LEVELS[level])


def _configure_ours(threshold: int, sink: Sink | None, now: Callable[[], Micros] | None, human: bool) -> None:
    structlog.configure(
        processors=[_with_facts, scrub(now), as_text if human else as_json],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_Output(sink).logger,
        cache_logger_on_first_use=False,
    )


class _Output:
    """Writes finished lines; a sink that fails costs lines, never the caller's work."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._lost = 0

    def logger(self, *_: Any) -> "_Output":
        return self

    def _line(self, line: str) -> None:
        # sys.stderr is looked up each time: it may be replaced after the logs were configured.
        sink = self._sink or sys.stderr
        note = as_json(None, "warning", {"level": "warning", "event": "log lines lost", "lost": self._lost})
        try:
            sink.write(f"{note}\n{line}\n" if self._lost else f"{line}\n")
            sink.flush()
            self._lost = 0
        except (OSError, ValueError):  # a full disk, a closed pipe or a closed file
            self._lost += 1

    msg = debug = info = warning = error = critical = exception = fatal = _line


_configure_ours(logging.WARNING, None, None, human=False)  # until someone configures: warnings to stderr
