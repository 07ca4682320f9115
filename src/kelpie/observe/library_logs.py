"""Bridge from the standard `logging` module, which libraries use, to Kelpie's log lines."""

import logging
from typing import ClassVar

import structlog  # noqa: TID251 - this module and `logs` are the only users

# At INFO these repeat what Kelpie's own lines say.
_VERBOSE = ("httpx", "httpcore", "uvicorn", "asyncio", "alembic", "sqlalchemy")
LIBRARY_MESSAGE = "library_message"  # one code for all records: libraries have no codes of their own


class LibraryLogHandler(logging.Handler):
    """Root handler that logs the records of libraries; the name of the library's logger is the component."""

    _installed: ClassVar["LibraryLogHandler | None"] = None

    @classmethod
    def install(cls, threshold: int) -> None:
        """Makes this the root handler, once, and limits verbose libraries to warnings."""
        if cls._installed is None:
            cls._installed = cls()
            logging.getLogger().addHandler(cls._installed)
        logging.getLogger().setLevel(threshold)
        for name in _VERBOSE:
            logging.getLogger(name).setLevel(max(threshold, logging.WARNING))

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(component=record.name, code=LIBRARY_MESSAGE)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        say = logger.error if record.levelno >= logging.ERROR else logger.warning
        if record.levelno < logging.WARNING:
            say = logger.info if record.levelno >= logging.INFO else logger.debug
        say(message, exc_info=record.exc_info)
