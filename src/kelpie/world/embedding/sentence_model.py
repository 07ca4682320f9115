"""A sentence encoder in memory: tokenizer, weights and runtime. Everything heavy is imported here and nowhere else.

The ONNX graph is built from the published weights once and stored beside the data, until the weights change. A text
longer than the model's window is read in windows whose vectors are averaged. It runs in a process of its own, see
`process`; what is to be logged goes to the server through `report`.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from kelpie.core.errors import ModelError, ModelFault
from kelpie.world.embedding import calibration
from kelpie.world.embedding.byte_graph import ByteGraph
from kelpie.world.embedding.graph_file import graph_file
from kelpie.world.embedding.onnx_graph import INPUTS, Graph, Shape, encoder

WINDOW_TOKENS = 256
WINDOWS_MAX = 8  # of one text; what follows is found by its words
BATCH_TOKENS = WINDOW_TOKENS  # that are run at once; more would be no faster and take more memory
PADDING_MAX = 1.15  # padding costs as much as words, and two small batches little more than a large one
THREADS = 1  # the other cores are for the agents; a query takes one for some milliseconds
# SHA-256 of the published files. The weights are checked when the graph is built, the tokenizer at every load.
_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_DTYPES = {"F32": "<f4", "I64": "<i8"}

Vectors = NDArray[np.float32]


class SentenceModel:
    """The loaded model; several threads may use it."""

    def __init__(self, place: Path, cache: Path, precision: str, report: Callable[[str], None]) -> None:
        """`precision` is "int8" or "float32"; `report` gets the error of a stored graph that had to be built again.

        Raises ModelError when the files cannot be used.
        """
        try:
            _check(place / "tokenizer.json", _TOKENIZER)
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
            self._tokenizer.enable_truncation(WINDOW_TOKENS)  # pyright: ignore[reportUnknownMemberType]
            self._tokenizer.no_padding()
            self._session = self._opened(place, cache, precision, report)
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

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One unit vector per text, as little-endian 32-bit floats."""
        windows: list[Encoding] = []
        owners: list[int] = []
        for number, encoded in enumerate(self._tokenizer.encode_batch(list(texts))):
            parts = [encoded, *encoded.overflowing][:WINDOWS_MAX]
            windows += parts
            owners += [number] * len(parts)
        lengths = [len(window.ids) for window in windows]
        order = sorted(range(len(windows)), key=lengths.__getitem__)
        vectors = [self._run([windows[each].ids for each in batch]) for batch in _batches(order, lengths)]
        whole: Vectors = np.zeros((len(texts), vectors[0].shape[1]), np.float32)
        np.add.at(whole, [owners[each] for each in order], np.concatenate(vectors))
        whole /= np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-12)
        return [row.astype("<f4").tobytes() for row in whole]

    def _run(self, windows: Sequence[Sequence[int]]) -> Vectors:
        """The vectors of windows, of which the last is the longest."""
        ids = np.zeros((len(windows), len(windows[-1])), np.int64)
        mask = np.zeros_like(ids)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = window
            mask[row, : len(window)] = 1
        return self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    def _opened(self, place: Path, cache: Path, precision: str, report: Callable[[str], None]) -> Any:
        """The graph of these weights, ready to run: the stored one or, if none works, a new one."""
        graph = graph_file(place, cache, precision)
        if graph.is_file():
            try:
                return _session(graph)
            except Exception as error:  # noqa: BLE001 - whatever the runtime says of a broken file; it is built again
                report(f"{graph}: {error}")
        _check(place / "model.safetensors", _WEIGHTS)
        sentences = [encoded.ids for encoded in self._tokenizer.encode_batch(list(calibration.SENTENCES))]
        _build(place, graph, sentences if precision == "int8" else None)
        for old in sorted(cache.glob("sentence-model-*.onnx")):
            if old != graph:
                old.unlink(missing_ok=True)
        return _session(graph)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """The windows, from short to long, in batches of about the same length."""
    batch: list[int] = []
    words = 0
    for each in order:
        padded = lengths[each] * (len(batch) + 1)
        if batch and padded > min(BATCH_TOKENS, PADDING_MAX * (words + lengths[each])):
            yield batch
            batch, words = [], 0
        batch.append(each)
        words += lengths[each]
    if batch:
        yield batch


def _check(file: Path, sha256: str) -> None:
    """Raises ValueError for a file that is not the published one."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{file.name} has the SHA-256 {found}, and the published file has {sha256}")


def _session(graph: Path) -> Any:
    options: Any = cast("Any", onnxruntime).SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it keeps the memory of the largest batch so far
    options.enable_mem_pattern = False  # it would keep a plan for each length of a batch
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def _build(place: Path, graph: Path, sentences: Sequence[Sequence[int]] | None) -> None:
    """Builds the graph, with eight bits if there are sentences to calibrate it by.

    It is written under another name first, so that a crash leaves no incomplete file.
    """
    config = json.loads((place / "config.json").read_text())
    shape = Shape(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        width=config["hidden_size"],
        epsilon=config["layer_norm_eps"],
    )
    weights = _weights(place / "model.safetensors")
    empty = Graph(weights)
    if sentences is not None:
        empty = ByteGraph(weights, calibration.input_sizes(weights, shape, sentences), INPUTS[0])
    graph.parent.mkdir(parents=True, exist_ok=True)
    unfinished = graph.with_name(f"{graph.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            for piece in encoder(empty, shape):
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
