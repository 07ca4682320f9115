"""A server in the background: starting it, checking whether it is alive, asking it to stop.

Only the command line uses this. It must never signal a process that is not known to be a Kelpie server: callers check
the lock of the data directory first, because process ids are reused.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kelpie.world.processes.processes import spawn_detached

_EVERY_S = 0.03
_TAIL_BYTES = 16_384


class Child:
    """A detached child process whose output goes to a file."""

    def __init__(self, argv: Sequence[str], output: Path) -> None:
        """Starts it. Raises OSError."""
        self._output = output
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            self.pid = spawn_detached(argv, log=log)
        self._code: int | None = None

    def ended(self) -> int | None:
        """The exit code, or None while it runs; minus the signal's number if one killed it."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def last_line(self) -> str:
        """The last line of its output: the sentence that explains a failed start."""
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


def alive(pid: int) -> bool:
    """Checks whether a process with this id exists and has not ended; one that only waits to be reaped has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return True  # no /proc here
    return state != "Z"


def ask_to_stop(pid: int) -> None:
    """Sends SIGTERM; a process that is gone already is no error. Raises PermissionError."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def wait_until(check: Callable[[], bool], timeout_s: float) -> bool:
    """Polls until the condition is true; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_EVERY_S)
    return True
