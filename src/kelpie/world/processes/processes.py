"""Starting other processes. The sandbox and the background server go through here; workers have their own package."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The exit code of a process, and its output up to the given limit."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False


class Processes(Protocol):
    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output_bytes_max: int,
    ) -> ProcessResult:
        """Runs a command to its end; past the time-out its whole process group is killed."""
        ...


class SystemProcesses:
    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output_bytes_max: int,
    ) -> ProcessResult:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
        assert process.stdin and process.stdout and process.stderr
        out, err = _Capture(output_bytes_max), _Capture(output_bytes_max)
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(_feed(process.stdin, stdin), out.drain(process.stdout), err.drain(process.stderr))
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
                await process.wait()
        return ProcessResult(
            process.returncode or 0,
            bytes(out.data),
            bytes(err.data),
            timed_out,
            out.truncated or err.truncated,
        )


class _Capture:
    """Reads a pipe to its end but keeps only up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self._bytes_max = bytes_max

    async def drain(self, pipe: asyncio.StreamReader) -> None:
        while chunk := await pipe.read(65536):
            room = self._bytes_max - len(self.data)
            self.data += chunk[:room]
            self.truncated = self.truncated or len(chunk) > room


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # the process did not read its input; its exit code shows the rest


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def spawn_detached(argv: Sequence[str], *, log: IO[bytes]) -> int:
    """Starts a process that outlives this one, its output going to a file; returns its pid."""
    process = subprocess.Popen(
        list(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
    )
    return process.pid
