"""Line editing at a prompt, with a history in a file that only its owner can read.

Where Python has no readline, input still works, without history.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import readline
except ImportError:  # not every Python has it
    readline = None

LINES_MAX = 1000


@contextmanager
def line_history(path: Path | None) -> Generator[None]:
    """While it is open, `input()` offers the lines of the file; at the end the new lines are added to it.

    A file that cannot be read or written is not an error: the history is then that of this session.
    """
    if readline is not None:
        readline.parse_and_bind("set enable-bracketed-paste on")  # several lines that are pasted stay one text
    if readline is None or path is None or not path.parent.is_dir():
        yield
        return
    readline.set_history_length(LINES_MAX)
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            readline.write_history_file(path)
