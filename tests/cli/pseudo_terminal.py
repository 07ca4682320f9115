"""A person at a terminal: a command runs on a real pseudo-terminal of its own, with keys that are sent to it.

The command is forked from a process that has imported it, as in `tests.forks`, and has the terminal as its
controlling one, so that Ctrl-C arrives as it does for a person.
"""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from kelpie.cli import main
from tests.forks import call

DEADLINE_S = 60
CTRL_C, CTRL_D = "\x03", "\x04"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal with a command on it."""

    def __init__(self, master: int, process: BaseProcess) -> None:
        self.master = master
        self._process = process
        self._kept = b""  # written after the last mark

    def until(self, mark: str) -> str:
        """What is written until this text appears, without escape sequences. Fails after a deadline."""
        found = self._read_until(mark)
        return plain(found)

    def raw_until(self, mark: str) -> str:
        """The same with its escape sequences, which do not count for the mark."""
        return self._read_until(mark)

    def send(self, keys: str) -> None:
        """Presses keys."""
        os.write(self.master, keys.encode())

    def type(self, keys: str, until: str) -> str:
        """Presses keys and returns what is written until a text appears after them."""
        self.send(keys)
        return self.until(until)

    def ends(self) -> tuple[int | None, str]:
        """The exit code and what was written before it."""
        rest = self._kept
        while True:
            try:
                data = self._wait(rest)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            rest += data
        self._process.join(DEADLINE_S)
        return self._process.exitcode, plain(rest.decode("utf-8", "replace"))

    def _read_until(self, mark: str) -> str:
        seen = self._kept
        while True:
            text = seen.decode("utf-8", "replace")
            place = _end_of(mark, text)
            if place is not None:
                self._kept = text[place:].encode()
                return text[:place]
            try:
                data = self._wait(seen)
            except OSError:
                raise AssertionError(f"the command ended, and {mark!r} did not come after {text!r}") from None
            assert data, f"{mark!r} did not come after {text!r}"
            seen += data

    def _wait(self, seen: bytes) -> bytes:
        assert select.select([self.master], [], [], DEADLINE_S)[0], f"nothing came after {seen!r}"
        return os.read(self.master, 4096)


def plain(text: str) -> str:
    """The text without escape sequences, and with the line ends of a file."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n")


def _end_of(mark: str, text: str) -> int | None:
    """The place after a mark in a text that has escape sequences between its characters."""
    pattern = r"(?:\x1b\[[0-9;?]*[A-Za-z])*".join(re.escape(character) for character in mark)
    found = re.search(pattern, text)
    return None if found is None else found.end()


@contextmanager
def at_terminal(
    arguments: Sequence[str], env: Mapping[str, str], *, columns: int = 80, cwd: Path | None = None
) -> Iterator[Terminal]:
    """Runs `kelpie ...` at a terminal; it is killed at the end if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {"TERM": "xterm"} | {name: value for name, value in env.items() if name not in ("COLUMNS", "NO_COLOR")}
    settings |= {name: value for name, value in env.items() if name == "NO_COLOR" and value}
    process = call(_become, list(arguments), settings, cwd or Path.cwd(), os.ttyname(slave))
    # The slave stays open here until the child has opened it: a terminal that nobody has open would hang up.
    terminal = Terminal(master, process)
    try:
        assert select.select([master], [], [], DEADLINE_S)[0], "the command wrote nothing"
        os.close(slave)
        slave = -1
        yield terminal
    finally:
        if slave >= 0:
            os.close(slave)
        process.kill()
        process.join()
        os.close(master)


def _become(arguments: list[str], env: dict[str, str], cwd: Path, terminal: str) -> None:
    """In the fork: the command, with the terminal as its controlling one."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    descriptor = os.open(terminal, os.O_RDWR)
    for number in range(3):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", line_buffering=True)
    sys.argv = ["kelpie", *arguments]
    main.main()
