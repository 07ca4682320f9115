"""Workers as processes of this machine: started when first needed, kept warm for a while, replaced when they end.

Each process runs one program and one request at a time. A request that exceeds its limits costs its process and nothing
else; the next request gets a new one.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path

import kelpie
from kelpie.core.errors import Overloaded
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.loop import ANSWER, CONTENT, FILE, HEAD, LAST_ANSWER, NO_MEMORY, file_request
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerLimits, WorkerProgram

RETRY_S = 5.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[4]); "
    "from kelpie.world.workers.loop import serve; serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
)
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # settings and keys of the server are not
_BUSY = "Too many requests of this organization are waiting for a worker process; try again later."


@dataclass(slots=True)
class _Worker:
    process: Process
    expiry: asyncio.TimerHandle | None = None

    def kill(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


@dataclass(slots=True)
class _Turns:
    """The requests of one owner, of which one runs at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class ProcessWorkers:
    """The worker processes of one server."""

    def __init__(self, limits: WorkerLimits | None = None) -> None:
        self.limits = limits or WorkerLimits()
        self._free = asyncio.Semaphore(self.limits.processes_max)
        self._owners: dict[str, _Turns] = {}
        self._idle: dict[WorkerProgram, list[_Worker]] = {}
        self.busy: set[Process] = set()
        self._closed = False

    async def ask(self, program: WorkerProgram, request: bytes | Upload, owner: str) -> bytes:
        """The answer of the program. Raises WorkerFailed, and Overloaded when too many requests of the owner wait."""
        turns = self._owners.setdefault(owner, _Turns())
        if turns.requests > self.limits.waiting_max:
            raise Overloaded("reader_queue_full", _BUSY, RETRY_S)
        turns.requests += 1
        try:  # an owner joins the queue of all again when its request is done, so owners take turns
            async with turns.lock, self._free:
                return await self._ask(program, request)
        finally:
            turns.requests -= 1
            if not turns.requests:
                del self._owners[owner]

    async def close(self) -> None:
        """Ends all processes; requests that wait fail with WorkerFailed."""
        self._closed = True
        idle = [worker for workers in self._idle.values() for worker in workers]
        self._idle.clear()
        for worker in idle:
            worker.kill()
        for process in self.busy:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(worker.process.wait() for worker in idle))

    async def _ask(self, program: WorkerProgram, request: bytes | Upload) -> bytes:
        worker = self._warm(program) or _Worker(await self._start(program))
        process, kept = worker.process, False
        self.busy.add(process)
        try:
            async with asyncio.timeout(program.wall_s):
                answer, kept = await _exchange(process, program, request)
            return answer
        except TimeoutError:
            raise WorkerFailed(WorkerFault.time) from None
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            raise WorkerFailed(_fault(await process.wait())) from None
        finally:  # also when the client of this request is gone
            self.busy.discard(process)
            if kept and not self._closed:
                self._keep(program, worker)
            else:
                worker.kill()
                await process.wait()

    def _warm(self, program: WorkerProgram) -> _Worker | None:
        idle = self._idle.get(program, [])
        while idle:
            worker = idle.pop()
            assert worker.expiry is not None
            worker.expiry.cancel()
            if worker.process.returncode is None:
                return worker
        return None

    def _keep(self, program: WorkerProgram, worker: _Worker) -> None:
        idle = self._idle.setdefault(program, [])
        idle.append(worker)
        worker.expiry = asyncio.get_running_loop().call_later(self.limits.idle_s, self._expire, idle, worker)

    def _expire(self, idle: list[_Worker], worker: _Worker) -> None:
        if worker in idle:
            idle.remove(worker)
            worker.kill()

    async def _start(self, program: WorkerProgram) -> Process:
        if self._closed:
            raise WorkerFailed(WorkerFault.crash)
        places = [str(Path(kelpie.__file__).parent.parent), *(place for place in sys.path if place)]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",  # nothing from the environment or the current directory
            "-S",
            "-c",
            _BOOT,
            program.module,
            str(program.memory_bytes),
            str(program.cpu_s),
            json.dumps(places),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            cwd="/",
            start_new_session=True,  # a signal to the server's terminal is not for it
        )


async def _exchange(process: Process, program: WorkerProgram, request: bytes | Upload) -> tuple[bytes, bool]:
    """The answer, and True if the process can take another request."""
    assert process.stdin is not None and process.stdout is not None
    content = request if isinstance(request, bytes) else file_request(str(request.path), request.head)
    process.stdin.write(HEAD.pack(len(content), CONTENT if isinstance(request, bytes) else FILE))
    process.stdin.write(content)
    await process.stdin.drain()
    length, flag = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
    if flag == NO_MEMORY or length > program.answer_bytes_max:
        raise WorkerFailed(WorkerFault.memory)
    assert flag in (ANSWER, LAST_ANSWER)
    return await process.stdout.readexactly(length), flag == ANSWER


def _fault(code: int) -> WorkerFault:
    return WorkerFault.time if code == -signal.SIGXCPU else WorkerFault.crash
