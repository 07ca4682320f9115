"""A real server in a process of its own, with its own data directory and port, driven by the `kelpie` command."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kelpie.core.settings.settings import VARIABLES
from kelpie.world.files.data_dir import DataDir

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
        return subprocess.run(
            [str(BIN / "kelpie"), *arguments],
            env=self.env | dict(env or {}),
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
