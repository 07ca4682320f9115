"""A real server in a process of its own, with its own data directory and port, driven by the `kelpie` command.

Commands are forked from a process that has imported the command line already (tests/forks.py), and so is the server of
`Live.serve`, and the one that `kelpie server start` starts unless `REAL_START` is in the environment. Commands as they
are installed are run by tests/project/test_docs.py, tests/release/test_dist.py and the tests here that use `BIN`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kelpie.core.settings.settings import VARIABLES
from kelpie.world.files.data_dir import DataDir
from kelpie.world.http.health_probe import version_at
from kelpie.world.processes.server_process import wait_until
from tests.forks import fork

BIN = Path(sys.executable).parent
COMMAND_S = 120


@contextmanager
def kept_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile: bound and not listening, it stays free for a server that names it."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]


@dataclass
class Live:
    """An environment for commands; `url` is where its server listens or would."""

    data_dir: Path
    port: int
    extra: Mapping[str, str]
    forks: list[BaseProcess] = field(default_factory=list[BaseProcess])  # servers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES and name != "KELPIE_CONFIG"}
        return kept | {
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', '')}",
            "KELPIE_DATA_DIR": str(self.data_dir),
            "KELPIE_PORT": str(self.port),
            "KELPIE_DISCOVER_MODELS": "false",  # this machine may have model servers of its own
            **self.extra,
        }

    def kelpie(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None):
        """Runs `kelpie ...` to its end."""
        return forked(arguments, stdin, self.env | dict(env or {}), cwd)

    def serve(self) -> None:
        """Starts the server in the background, as `kelpie server start` does, and waits until it answers."""
        output = DataDir.open(str(self.data_dir)).path / "start.log"
        process = fork(("server", "start", "--detached"), self.env, (Path(os.devnull), output, output))
        self.forks.append(process)
        wait_until(lambda: process.exitcode is not None or self._answers(), COMMAND_S)
        assert process.exitcode is None and self._answers(), output.read_text()

    def _answers(self) -> bool:
        holder = DataDir.holder(str(self.data_dir))
        return holder is not None and holder.url is not None and version_at(holder.url) is not None

    def json(self, *arguments: str) -> Any:
        """What `kelpie ... --json` prints."""
        done = self.kelpie(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def forked(
    arguments: Sequence[str], stdin: str, env: Mapping[str, str], cwd: Path | None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end in a fork of a process that has imported it. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory() as directory:
        read, *written = (Path(directory, name) for name in ("stdin", "stdout", "stderr"))
        read.write_text(stdin)
        process = fork(arguments, env, (read, written[0], written[1]), cwd=cwd)
        process.join(COMMAND_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), COMMAND_S)
        told = [path.read_text() if path.exists() else "" for path in written]
        return subprocess.CompletedProcess(list(arguments), code, *told)


@contextmanager
def live(data_dir: Path, extra: Mapping[str, str] | None = None) -> Iterator[Live]:
    """An environment whose server, if any was started, is stopped at the end."""
    with kept_port() as port:
        place = Live(data_dir, port, extra or {})
        try:
            yield place
        finally:
            if DataDir.holder(str(data_dir)) is not None:
                place.kelpie("server", "stop")
            for process in place.forks:
                process.kill()  # where the stop did not succeed
