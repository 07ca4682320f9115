"""The embedding process: started when the first text comes, and ended when none has come for a while.

A process of its own gives all of its memory back when it ends, and never holds the interpreter of the server. It may
die or hang at any time: the requests under way fail then, and the next one starts another.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import kelpie
from kelpie.core.errors import ModelError, ModelFault
from kelpie.observe import logs
from kelpie.world.embedding.process_loop import FAILED, HEAD, PATIENT, PROMPT, REPORT

SILENT_S = 100.0  # a request without an answer for so long means that the process hangs
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from kelpie.world.embedding.process_loop import main; main(*sys.argv[2:5])"
)
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # settings and keys of the server are not
# Each further thread would reserve memory.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1"}

_log = logs.get("embedder")


class EmbeddingProcess:
    """One process, from its start to its end. `start` gives one; it is not used again once `ended` is true."""

    def __init__(self, process: Process, size: int) -> None:
        self._process = process
        self._size = size  # bytes of a vector
        self._waiting: dict[int, asyncio.Future[list[bytes]]] = {}
        self._number = 0
        self._reader = asyncio.create_task(self._read())
        self.ended = False
        self.answered = False  # true once it has embedded anything

    @classmethod
    async def start(cls, place: Path, cache: Path, precision: str, size: int) -> "EmbeddingProcess":
        """Raises ModelError when no process can be started now."""
        places = [str(Path(kelpie.__file__).parent.parent), *(each for each in sys.path if each)]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",  # nothing from the environment or the current directory
                "-S",
                "-c",
                _BOOT,
                json.dumps(places),
                str(place),
                str(cache),
                precision,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _ONE_THREAD,
                start_new_session=True,  # a signal to the server's terminal is not for it
            )
        except OSError as error:
            raise ModelError(
                ModelFault.server, f"The embedding process cannot be started now: {error}. The server tries again."
            ) from error
        return cls(process, size)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def embed(self, texts: Sequence[str], *, patient: bool) -> list[bytes]:
        """One vector per text. Raises ModelError."""
        if self.ended:
            raise self._gone()
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        body = json.dumps(list(texts)).encode()
        try:
            async with asyncio.timeout(SILENT_S):
                assert self._process.stdin is not None
                self._process.stdin.write(HEAD.pack(len(body), self._number, PATIENT if patient else PROMPT) + body)
                await self._process.stdin.drain()
                return await answer
        except TimeoutError:
            self.kill()
            raise ModelError(
                ModelFault.server, f"The embedding process did not answer within {SILENT_S:g} s and was ended."
            ) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._gone() from None
        finally:
            self._waiting = {number: other for number, other in self._waiting.items() if other is not answer}

    def kill(self) -> None:
        """Ends the process; what it was asked fails."""
        self.ended = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # asyncio's own would take the exit code from its watcher

    async def close(self) -> None:
        """Ends the process and waits until it is gone."""
        self.kill()
        await self._reader

    async def _read(self) -> None:
        """Takes answers until the process ends."""
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                length, number, flag = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
                self._take(number, flag, await self._process.stdout.readexactly(length))
        self.kill()
        await self._process.wait()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._gone())

    def _take(self, number: int, flag: int, body: bytes) -> None:
        if flag == REPORT:
            _log.warning(
                "embedding_graph_damaged",
                "Embedding model graph is damaged; building it again",
                error=body.decode(errors="replace"),
            )
            return
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return  # whoever asked has gone
        if flag == FAILED:
            kind, message, detail = json.loads(body)
            answer.set_exception(ModelError(ModelFault(kind), message, detail=detail))
            return
        self.answered = True
        answer.set_result([body[at : at + self._size] for at in range(0, len(body), self._size)])

    def _gone(self) -> ModelError:
        code = self._process.returncode
        return ModelError(
            ModelFault.server,
            f"The embedding process ended{'' if code is None else f' with code {code}'}. The server starts another.",
        )
