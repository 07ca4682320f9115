"""A sentence encoder in memory: tokenizer, weights and runtime. Everything heavy is imported here and nowhere else.

The ONNX graph is built from the published weights once and stored beside the data, until the weights change. A text
longer than the model's window is read in windows whose vectors are averaged.
"""

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from kelpie.core.errors import ModelError, ModelFault
from kelpie.observe import logs
from kelpie.world.embedding.onnx_graph import Shape, encoder

WINDOW_TOKENS = 256
WINDOWS_MAX = 8  # of one text; what follows is found by its words
BATCH = 8  # windows that are run at once, those of a length together; more would be no faster
THREADS = 1  # the other cores are for the agents; a query takes one for some milliseconds
_FORM = 1  # goes up when the graph is built differently
_SOURCES = ("config.json", "model.safetensors")
_DTYPES = {"F32": "<f4", "I64": "<i8"}

_log = logs.get("embedder")

Vectors = NDArray[np.float32]


class SentenceModel:
    """The loaded model; several threads may use it."""

    def __init__(self, place: Path, cache: Path) -> None:
        """Raises ModelError when the files cannot be used."""
        try:
            self._session = _opened(place, cache)
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        except OSError as error:  # no space for the graph, no descriptor left: it may pass
            raise ModelError(
                ModelFault.server,
                f"The embedding model in {place} cannot be loaded now: {error.strerror or error}. The server tries"
                " again by itself.",
            ) from error
        except Exception as error:  # whatever a library says of a broken file
            raise ModelError(
                ModelFault.malformed,
                f"The embedding model in {place} cannot be used: install it again.",
                detail=" ".join(str(error).split())[:500],
            ) from error
        self._tokenizer.enable_truncation(WINDOW_TOKENS)  # pyright: ignore[reportUnknownMemberType]
        self._tokenizer.enable_padding()  # pyright: ignore[reportUnknownMemberType]

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One unit vector per text, as little-endian 32-bit floats."""
        windows: list[Encoding] = []
        owners: list[int] = []
        for number, encoded in enumerate(self._tokenizer.encode_batch(list(texts))):
            parts = [encoded, *encoded.overflowing][:WINDOWS_MAX]
            windows += parts
            owners += [number] * len(parts)
        lengths = [sum(window.attention_mask) for window in windows]
        order = sorted(range(len(windows)), key=lengths.__getitem__)  # padding to the longest costs as much as words
        batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        vectors = [self._run([windows[each] for each in batch], lengths[batch[-1]]) for batch in batches]
        whole: Vectors = np.zeros((len(texts), vectors[0].shape[1]), np.float32)
        np.add.at(whole, [owners[each] for each in order], np.concatenate(vectors))
        whole /= np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-12)
        return [row.astype("<f4").tobytes() for row in whole]

    def _run(self, windows: Sequence[Encoding], length: int) -> Vectors:
        ids = np.array([window.ids[:length] for window in windows], np.int64)
        mask = np.array([window.attention_mask[:length] for window in windows], np.int64)
        return self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def _opened(place: Path, cache: Path) -> Any:
    """The graph of these weights, ready to run: the stored one or, if none works, a new one."""
    graph = cache / f"sentence-model-{_FORM}-{_fingerprint(place)}.onnx"
    if graph.is_file():
        try:
            return _session(graph)
        except Exception as error:  # noqa: BLE001 - whatever the runtime says of a broken file; it is built again
            _log.warning(
                "embedding_graph_damaged",
                "Embedding model graph is damaged; building it again",
                graph=str(graph),
                error=str(error),
            )
    _build(place, graph)
    for old in sorted(cache.glob("sentence-model-*.onnx")):
        if old != graph:
            old.unlink(missing_ok=True)
    return _session(graph)


def _fingerprint(place: Path) -> str:
    """A value that changes with the files: reading all of them at every start would cost more than loading them."""
    found = [(name, (place / name).stat()) for name in _SOURCES]
    return f"{crc32(repr([(name, each.st_size, each.st_mtime_ns) for name, each in found]).encode()):08x}"


def _session(graph: Path) -> Any:
    options: Any = cast("Any", onnxruntime).SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def _build(place: Path, graph: Path) -> None:
    """Writes the graph under another name first, so that a crash leaves no incomplete file."""
    config = json.loads((place / "config.json").read_text())
    shape = Shape(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        width=config["hidden_size"],
        epsilon=config["layer_norm_eps"],
    )
    graph.parent.mkdir(parents=True, exist_ok=True)
    unfinished = graph.with_name(f"{graph.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            for piece in encoder(_weights(place / "model.safetensors"), shape):
                file.write(piece)
        unfinished.replace(graph)
    finally:
        unfinished.unlink(missing_ok=True)


def _weights(path: Path) -> Mapping[str, NDArray[Any]]:
    """The tensors of a safetensors file: a length, a JSON table of offsets, and the numbers."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    table: dict[str, Any] = json.loads(data[8 : 8 + length])
    found: dict[str, NDArray[Any]] = {}
    for name, entry in table.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            piece = memoryview(data)[8 + length + begin : 8 + length + end]
            found[name] = np.frombuffer(piece, _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found
