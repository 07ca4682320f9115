"""A server as its users run it: `kelpie server start --foreground` in a process of its own, on its own data directory.

The process is a fork of one that has imported the server already (tests/forks.py).
It can be stopped, killed and started again on the same data. Every wait has a deadline and says what was missing.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx

from tests.forks import fork

FOREGROUND = ("server", "start", "--foreground")
COMMAND = (str(Path(sys.executable).parent / "kelpie"), *FOREGROUND)
START_S = 60.0
STOP_S = 40.0
PAUSE_S = 0.02  # between two looks


def wait_for(what: str, look: Callable[[], bool], within_s: float) -> None:
    """Looks again and again until it is so. Raises TimeoutError naming what was waited for."""
    end = time.monotonic() + within_s
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        time.sleep(PAUSE_S)


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """The environment of a server: nothing of the caller's settings, a port of its own, quiet logs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KELPIE_", "OPENAI_"))}
    ours = {"KELPIE_DATA_DIR": str(data_dir), "KELPIE_PORT": "0", "KELPIE_LOG_LEVEL": "warning"}
    ours["KELPIE_SANDBOX_PACKAGES"] = "false"  # nothing is fetched from an index unless a test is about that
    return kept | ours | settings


class Served:
    """A server on a data directory; `url` changes with every start."""

    def __init__(self, data_dir: Path, *, open_files: tuple[int, int] | None = None, **settings: str) -> None:
        self.data_dir = data_dir
        self._open_files = open_files
        self.url = ""
        self._settings = settings
        self._process: BaseProcess | None = None
        data_dir.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None and self._process.pid is not None, "not started"
        return self._process.pid

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        assert self._process is None, "still running"
        said = self.data_dir / "stderr.txt"
        env = environment(self.data_dir, **self._settings)
        self._process = fork(FOREGROUND, env, (Path(os.devnull), said, said), open_files=self._open_files)

    def start(self) -> None:
        """Starts the process and waits until it answers. Raises AssertionError with its last words if it ends."""
        self.launch()
        with httpx.Client(trust_env=False, timeout=START_S) as http:
            wait_for("the server answers", lambda: self._answers(http), START_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None, "not started"
        self._process.terminate()
        return self._ended()

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._ended()

    def restart(self) -> None:
        """Stops and starts again, on the same data."""
        code = self.stop()
        assert code == 0, f"the server ended with {code}:\n{self.last_words()}"
        self.start()

    def close(self) -> None:
        """Makes sure that no process is left."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._ended()
            except TimeoutError:
                self.kill()

    def last_words(self) -> str:
        """The end of what the server wrote, for a failing test to show."""
        return (self.data_dir / "stderr.txt").read_text(errors="replace")[-4000:]

    def _ended(self) -> int:
        assert self._process is not None
        self._process.join(STOP_S)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"the server ends: not within {STOP_S:.0f} s")
        self._process = None
        return code

    def _answers(self, http: httpx.Client) -> bool:
        assert self._process is not None
        code = self._process.exitcode
        assert code is None, f"the server ended with {code}:\n{self.last_words()}"
        note = self.data_dir / "kelpie.pid"
        if not note.exists():
            return False
        pid, _, url = note.read_text().strip().partition("\n")
        if pid != str(self.pid) or not url:  # a note of an earlier life, or not listening yet
            return False
        self.url = url
        try:
            return http.get(f"{url}/v1/health/").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def served(data_dir: Path, *, open_files: tuple[int, int] | None = None, **settings: str) -> Iterator[Served]:
    """A running server that is gone at the end, however the test ends; it may open `open_files` (soft, hard) files."""
    server = Served(data_dir, open_files=open_files, **settings)
    try:
        server.start()
        yield server
    finally:
        server.close()
