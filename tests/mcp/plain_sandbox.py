"""A sandbox without walls for tests of what talks to a program: each job is a plain process."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from kelpie.core.tools.mcp_servers import McpConfig, McpOptions, McpServerType
from kelpie.sandbox.port import SandboxJob, SandboxProcess
from kelpie.world.cells.port import ChannelClosed

PROGRAM = (Path(__file__).parent / "stdio_program.py").read_text()


def program(how: str = "ok", **options: object) -> McpConfig:
    """The configuration of the misbehaving server."""
    return McpConfig(
        McpServerType.stdio,
        command=sys.executable,
        args=("-c", PROGRAM, how),
        options=McpOptions(**options),  # pyright: ignore[reportArgumentType]
    )


class PlainSandbox:
    """Starts programs and remembers them."""

    def __init__(self) -> None:
        self.started: list[PlainProcess] = []

    async def start(self, job: SandboxJob) -> SandboxProcess:
        argv = json.loads(job.request)["argv"]
        env = {"PATH": os.environ["PATH"], **job.env}
        process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1, stderr=-1, env=env)
        self.started.append(PlainProcess(process))
        return self.started[-1]

    @property
    def running(self) -> int:
        return sum(each.process.returncode is None for each in self.started)


class PlainProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._errors = bytearray()
        self._reading = asyncio.create_task(self._read_errors())

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        data = await self.process.stdout.read(65536)
        if not data:
            await self._reading
        return data

    def last_words(self) -> str:
        return self._errors.decode()

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._reading.cancel()

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(65536):
            self._errors += data
