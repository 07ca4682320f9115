"""Line editing at a prompt, with a history in a file that only its owner can read.

Where Python has no readline, input still works, without history.
"""

import os
from collections.abc import Callable, Generator
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
    if readline is not None and os.environ.get("TERM", "") not in ("", "dumb"):
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


def colored_prompt(text: str, start: str, end: str) -> str:
    """A prompt with a color, marked so that readline does not count the escape sequences as characters."""
    if readline is None or not start:
        return f"{start}{text}{end}"
    return f"\x01{start}\x02{text}\x01{end}\x02"


def one_answer(read: Callable[[str], str], prompt: str, prefill: str = "") -> str:
    """Reads a line that is no part of the history, with a text in it that can be edited.

    Raises what `read` raises.
    """
    if readline is None:
        return read(prompt)
    insert = readline.insert_text
    before = readline.get_current_history_length()
    if prefill:
        readline.set_startup_hook(lambda: insert(prefill))
    try:
        return read(prompt)
    finally:
        readline.set_startup_hook()
        if readline.get_current_history_length() > before:
            readline.remove_history_item(readline.get_current_history_length() - 1)
