"""An exception as text, bounded in frames. Local variables are never shown: they may hold secrets."""

import sys
import traceback
from typing import Any

FRAMES_MAX = 40


def traceback_of(exc_info: Any) -> str | None:
    """The traceback of an exception, of an exc_info tuple, or (True) of the exception being handled."""
    match exc_info:
        case BaseException():
            error = exc_info
        case (_, BaseException() as error, _):
            pass
        case True:
            error = sys.exc_info()[1]
        case _:
            error = None
    if error is None:
        return None
    return "".join(traceback.format_exception(error, limit=-FRAMES_MAX)).rstrip()
