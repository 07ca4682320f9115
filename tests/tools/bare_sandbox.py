"""A sandbox without walls for tests of what stands around it: the runner's own program in a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import kelpie.world
from kelpie.sandbox.port import JobEnding, JobResult, Runner, SandboxJob

CELL = Path(kelpie.world.__file__).with_name("cell_programs")
_PYTHON = (
    "import json, os, sys; sys.path.insert(0, sys.argv[1]); from python_function import perform; "
    "os.write(int(sys.argv[3]), json.dumps(perform(json.loads(os.fdopen(int(sys.argv[2]), 'rb').read()))).encode())"
)


class BareSandbox:
    """Runs jobs as they come, and remembers them. `ends` may say how one ends instead of running it."""

    def __init__(self, ends: Callable[[SandboxJob], JobResult | None] = lambda job: None) -> None:
        self.jobs: list[SandboxJob] = []
        self._ends = ends

    async def run(self, job: SandboxJob) -> JobResult:
        self.jobs.append(job)
        if (ended := self._ends(job)) is not None:
            return ended
        (ask, asked), (answer, answered) = os.pipe(), os.pipe()
        assert job.runner is Runner.python
        program = (sys.executable, "-I", "-c", _PYTHON, str(CELL), str(ask), str(answered))
        env = {"PATH": os.environ["PATH"], **job.env}
        process = await asyncio.create_subprocess_exec(
            *program, env=env, pass_fds=(ask, answered), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        os.close(ask), os.close(answered)
        request = _on_the_host(job)
        writing = asyncio.to_thread(_write, asked, request)
        reading = asyncio.to_thread(_read, answer)
        _, result, (out, err) = await asyncio.gather(writing, reading, process.communicate())
        return JobResult(
            JobEnding.finished, process.returncode, result or None, out, err, 1000, cpu_us=7, memory_peak_bytes=9
        )

    async def close(self) -> None:
        return


def _on_the_host(job: SandboxJob) -> bytes:
    """The request with the places of packages as they are outside of any cell."""
    request = json.loads(job.request)
    places = {mount.target: mount.source for mount in job.mounts}
    request["paths"] = [places.get(path, path) for path in request["paths"]]
    return json.dumps(request).encode()


def _write(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _read(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()
