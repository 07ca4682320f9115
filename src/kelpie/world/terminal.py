"""The terminal of this process: its width, typed lines, and a function that is called at an interval while the process
waits.

Only the command line uses this.
"""

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

WIDTH = 80  # where nothing says how wide it is
NOTICE_S = 0.2  # within which an interrupt at a prompt is noticed


def width(stream: TextIO) -> int:
    """The columns of a terminal: what COLUMNS says, else what the terminal says."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):  # no terminal, or a stream without a descriptor
        return WIDTH


@contextmanager
def every(seconds: float, call: Callable[[], None]) -> Generator[None]:
    """Calls a function at an interval until the block ends, in the main thread and between its waits.

    It uses the interval timer of the process, so a blocking read needs no second thread beside it. Outside of the main
    thread, where Python handles no signals, the function is never called.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    calling = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal calling
        if calling:  # the call still writes, for example to a terminal that Ctrl-S stopped
            return
        calling = True
        try:
            call()
        finally:
            calling = False

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def typed_line(prompt: str) -> str:
    """A line that is typed at a prompt. Raises EOFError at the end of the input, and KeyboardInterrupt.

    Python notices a Ctrl-C between the prompt and the wait for a key only with the next key, so the wait is interrupted
    from time to time.
    """
    with every(NOTICE_S, _nothing):
        return input(prompt)


def _nothing() -> None:
    """The signal alone is of use."""
