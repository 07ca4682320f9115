"""A real server in a process of its own, with its own data directory and port, driven by the `kelpie` command.

`kelpie server ...` runs as it is installed. Every other command is forked from a process that has imported the command
line already, because importing it is most of what a command takes.
"""

import io
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kelpie.cli import app, main
from kelpie.cli.commands import demo
from kelpie.cli.commands.conversations import chat
from kelpie.cli.commands.operations import doctor
from kelpie.core.settings.settings import VARIABLES
from kelpie.world.files.data_dir import DataDir

BIN = Path(sys.executable).parent
COMMAND_S = 120
PRELOADED = (
    __name__,
    *(module.__name__ for module in (app, chat, demo, doctor)),
    "pydantic.type_adapter",  # which typer imports late
    "encodings.idna",
)

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(list(PRELOADED))


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
            **self.extra,
        }

    def kelpie(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None):
        """Runs `kelpie ...` to its end."""
        settings = self.env | dict(env or {})
        if arguments[:1] != ("server",):
            return forked(arguments, stdin, settings, cwd)
        return subprocess.run(
            [str(BIN / "kelpie"), *arguments],
            env=settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            cwd=cwd,
        )

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
        streams = [Path(directory, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin)
        process = FORKS.Process(target=_become, args=(list(arguments), dict(env), cwd or Path.cwd(), streams))
        process.start()
        process.join(COMMAND_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), COMMAND_S)
        told = [path.read_text() if path.exists() else "" for path in streams[1:]]
        return subprocess.CompletedProcess(list(arguments), code, *told)


def _become(arguments: list[str], env: dict[str, str], cwd: Path, streams: list[Path]) -> None:
    """In the fork: the command, with its own environment, directory and standard streams."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (path, mode) in enumerate(zip(streams, modes, strict=True)):
        os.dup2(os.open(path, mode, 0o600), number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.argv = ["kelpie", *arguments]
    main.main()


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
