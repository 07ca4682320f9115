"""What libraries log through the standard `logging` module, led into our lines."""

import logging
from typing import ClassVar

import structlog  # noqa: TID251 - here and in `logs` it becomes kelpie.observe.logs

# These tell at INFO what our own lines already say.
_CHATTY = ("httpx", "httpcore", "uvicorn", "asyncio", "alembic", "sqlalchemy")


class LibraryLogHandler(logging.Handler):
    """Turns what libraries log through the standard module into lines of ours; the logger's name is the room."""

    _installed: ClassVar["LibraryLogHandler | None"] = None

    @classmethod
    def install(cls, threshold: int) -> None:
        """Makes this the root handler, once, and keeps chatty libraries to warnings."""
        if cls._installed is None:
            cls._installed = cls()
            logging.getLogger().addHandler(cls._installed)
        logging.getLogger().setLevel(threshold)
        for name in _CHATTY:
            logging.getLogger(name).setLevel(max(threshold, logging.WARNING))

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(room=record.name)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        say = logger.error if record.levelno >= logging.ERROR else logger.warning
        if record.levelno < logging.WARNING:
            say = logger.info if record.levelno >= logging.INFO else logger.debug
        say(message, exc_info=record.exc_info)
