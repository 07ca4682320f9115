"""The loop inside the embedding process: reads requests, embeds their texts on two threads, and writes the vectors.

Texts that somebody waits for have a thread of their own, so they never wait for background work, whose thread has the
lowest priority. The process ends when its input does: it never outlives the server.
"""

import importlib
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, Protocol

from kelpie.core.errors import ModelError, ModelFault
from kelpie.world.embedding.graph_file import graph_file

HEAD = struct.Struct(">IIB")  # length of the body, number of the request, and a flag
PROMPT, PATIENT = 0, 1  # flags of a request
VECTORS, FAILED, REPORT = 0, 1, 2  # flags of an answer; a report belongs to no request
QUIET_S = 1.0  # without a text, after which memory is given back; doing so after each one would double its cost
NICER = 10  # of the patient thread: a tenth of the share of others, so that it comes forward on a busy machine too


class Model(Protocol):
    def embed(self, texts: Sequence[str]) -> list[bytes]: ...


class _Answers:
    """The output, which all threads write to."""

    def __init__(self, output: BinaryIO) -> None:
        self._output, self._lock = output, threading.Lock()

    def write(self, number: int, flag: int, body: bytes) -> None:
        with self._lock:
            self._output.write(HEAD.pack(len(body), number, flag) + body)
            self._output.flush()


def main(place: str, cache: str, precision: str) -> None:
    """Serves the standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer

    def load(report: Callable[[str], None]) -> Model:
        module = importlib.import_module("kelpie.world.embedding.sentence_model")  # the heaviest imports of all
        return module.SentenceModel(Path(place), Path(cache), precision, report)

    if hasattr(os, "fork") and not _is_built(Path(place), Path(cache), precision):
        _build_apart(lambda: load(lambda _: None))

    serve(sys.stdin.buffer, answers, load)


def _is_built(place: Path, cache: Path, precision: str) -> bool:
    try:
        return graph_file(place, cache, precision).is_file()
    except OSError:
        return True  # loading says what is wrong


def _build_apart(build: Callable[[], object]) -> None:
    """Builds the graph in a process that ends with it: building takes much more memory than embedding, and a process
    rarely gives memory back. What fails there fails again here, and is reported then."""
    child = os.fork()
    if child == 0:
        try:
            build()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def serve(requests: BinaryIO, output: BinaryIO, load: Callable[[Callable[[str], None]], Model]) -> None:
    """Answers requests until the input ends, or until the first answer if the model cannot be loaded."""
    answers = _Answers(output)
    try:
        model = load(lambda text: answers.write(0, REPORT, text.encode()))
    except ModelError as error:
        _refuse(requests, answers, error)
        return
    except ImportError as error:
        advice = f"The embedding model cannot run ({error}): run `pip install onnxruntime tokenizers numpy`."
        _refuse(requests, answers, ModelError(ModelFault.bad_request, advice))
        return
    except OSError as error:  # no descriptor left
        text = f"The embedding model cannot be loaded now: {error}. The server tries again."
        _refuse(requests, answers, ModelError(ModelFault.server, text))
        return
    queues: tuple[SimpleQueue[tuple[int, bytes] | None], ...] = (SimpleQueue(), SimpleQueue())
    threads = [
        threading.Thread(target=_work, args=(queue, answers, model, flag == PATIENT), daemon=True)
        for flag, queue in enumerate(queues)
    ]
    for thread in threads:
        thread.start()
    while (request := _read(requests)) is not None:
        number, flag, body = request
        queues[flag].put((number, body))
    for queue in queues:
        queue.put(None)
    for thread in threads:
        thread.join()


def _work(queue: "SimpleQueue[tuple[int, bytes] | None]", answers: _Answers, model: Model, patient: bool) -> None:
    if patient:
        _step_back()
    while (request := _next(queue)) is not None:
        number, body = request
        try:
            vectors = model.embed(json.loads(body))
        except Exception as error:  # noqa: BLE001 - whatever the runtime says; the server reports it
            failed = ModelError(ModelFault.server, f"The embedding model failed: {type(error).__name__}: {error}")
            answers.write(number, FAILED, failure(failed))
        else:
            answers.write(number, VECTORS, b"".join(vectors))


def _next(queue: "SimpleQueue[tuple[int, bytes] | None]") -> tuple[int, bytes] | None:
    """Waits for the next request. What the last ones took is given back to the system when it takes long."""
    try:
        return queue.get(timeout=QUIET_S)
    except Empty:
        _give_back()
        return queue.get()


def _give_back() -> None:
    """Gives free memory back: the C library keeps some 40 MB of the longest texts. Only that of GNU can be asked to."""
    if sys.platform == "linux":
        ctypes = importlib.import_module("ctypes")  # the server imports this module too, and does not need it
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _refuse(requests: BinaryIO, answers: _Answers, error: ModelError) -> None:
    """Answers the first request with the error. The process ends then, and the next one tries again."""
    if (request := _read(requests)) is not None:
        answers.write(request[0], FAILED, failure(error))


def failure(error: ModelError) -> bytes:
    """An error as the body of an answer."""
    return json.dumps([error.kind.value, error.message, error.detail]).encode()


def _read(requests: BinaryIO) -> tuple[int, int, bytes] | None:
    """The next request; None at the end of the input, also within a request."""
    head = requests.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, number, flag = HEAD.unpack(head)
    body = requests.read(length)
    return (number, flag, body) if len(body) == length else None


def _step_back() -> None:
    """Lowers the priority of the current thread; only Linux supports that for a single thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER))
