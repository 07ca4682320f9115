"""Bridge from the standard `logging` module, which libraries use, to Kelpie's log lines."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

# At INFO these repeat what Kelpie's own lines say.
_VERBOSE = ("httpx", "httpcore", "uvicorn", "asyncio", "alembic", "sqlalchemy")
Log = Callable[[str, str, str, str, Mapping[str, Any]], None]  # level, component, code, event, facts
LIBRARY_MESSAGE = "library_message"  # one code for all records: libraries have no codes of their own


class LibraryLogHandler(logging.Handler):
    """Root handler that logs the records of libraries; the name of the library's logger is the component."""

    _installed: ClassVar["LibraryLogHandler | None"] = None

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    @classmethod
    def install(cls, threshold: int, log: Log) -> None:
        """Makes this the root handler, once, and limits verbose libraries to warnings."""
        if cls._installed is None:
            cls._installed = cls(log)
            logging.getLogger().addHandler(cls._installed)
        logging.getLogger().setLevel(threshold)
        for name in _VERBOSE:
            logging.getLogger(name).setLevel(max(threshold, logging.WARNING))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        level = "error" if record.levelno >= logging.ERROR else "warning"
        if record.levelno < logging.WARNING:
            level = "info" if record.levelno >= logging.INFO else "debug"
        self._log(level, record.name, LIBRARY_MESSAGE, message, {"exc_info": record.exc_info})
