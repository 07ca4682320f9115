"""Writes a sentence encoder of the BERT family as an ONNX graph, from the published weights.

An ONNX file is a protobuf message; the few fields a graph needs are written here directly, because the library that
knows all of them is larger than everything else the embedder needs, for a file that is written once. The runtime that
loads the result, and golden vectors, check it.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Attribute = int | float | list[int]
_IR, _OPSET = 8, 18
FLOAT, UINT8, _INT8, _INT64, _HALF = 1, 2, 3, 7, 10  # TensorProto.DataType
_TYPES = {"float32": FLOAT, "uint8": UINT8, "int8": _INT8, "int64": _INT64, "float16": _HALF}
RUNTIME = "com.microsoft"  # the domain of the operators that only this runtime has
GELU_MIN = -0.17  # the activation between two layers is never below it
_MASKED = -10_000.0  # added to the attention that padding would get
INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence"


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a model's configuration that the graph depends on."""

    layers: int
    heads: int
    width: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer: a row of weights and a bias for each output. `input_min` is the lowest value of its input, where
    there is one."""

    name: str
    weight: Array
    bias: Array
    input_min: float | None = None


class Graph:
    """Nodes and constants in the order they were added, with a fresh name for every value."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._names = 0

    def constant(self, value: Array) -> str:
        name = self._fresh()
        dims = b"".join(_number(1, size) for size in value.shape)
        kind = _TYPES[value.dtype.name]
        self._constants.append(dims + _number(2, kind) + _text(8, name) + _bytes(9, value.tobytes()))
        return name

    def numbers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def weight(self, name: str) -> str:
        return self.constant(self._weights[name])

    def node(
        self,
        kind: str,
        *inputs: str,
        out: str | None = None,
        domain: str = "",
        given: Mapping[str, Attribute] | None = None,
    ) -> str:
        name = out or self._fresh()
        body = b"".join(_text(1, value) for value in inputs) + _text(2, name) + _text(4, kind)
        body += _text(7, domain) if domain else b""
        attributes = (_bytes(5, _attribute(key, value)) for key, value in (given or {}).items())
        self._nodes.append(body + b"".join(attributes))
        return name

    def dense(self, state: str, layer: Dense) -> str:
        """A layer in which every output depends on every input."""
        product = self.node("MatMul", state, self.constant(np.ascontiguousarray(layer.weight.T)))
        return self.node("Add", product, self.constant(layer.bias))

    def words(self, ids: str) -> str:
        """The vector of each token."""
        return self.node("Gather", self.weight("embeddings.word_embeddings.weight"), ids)

    def gelu(self, state: str) -> str:
        error = self.node("Erf", self.node("Div", state, self.number(sqrt(2))))
        return self.node("Mul", self.node("Mul", state, self.node("Add", error, self.number(1))), self.number(0.5))

    def layer(self, *names: str, input_min: float | None = None) -> Dense:
        """The layers of these names as one, whose outputs follow each other."""
        weight = np.concatenate([self._weights[f"{name}.weight"] for name in names])
        return Dense(names[0], weight, np.concatenate([self._weights[f"{name}.bias"] for name in names]), input_min)

    def normed(self, state: str, name: str, epsilon: float) -> str:
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", state, scale, shift, given={"axis": -1, "epsilon": epsilon})

    def file(self, width: int) -> Iterator[bytes]:
        """The whole file in pieces: the constants are large."""
        body = [*(_bytes(1, node) for node in self._nodes), _text(2, "encoder")]
        body += [_bytes(5, constant) for constant in self._constants]
        body += [_bytes(11, _value(name, _INT64, ("batch", "length"))) for name in INPUTS]
        body.append(_bytes(12, _value(OUTPUT, FLOAT, ("batch", width))))
        yield _number(1, _IR) + _bytes(8, _text(1, "") + _number(2, _OPSET))
        yield _bytes(8, _text(1, RUNTIME) + _number(2, 1))
        yield _key(7, 2) + _varint(sum(map(len, body)))
        yield from body

    def _fresh(self) -> str:
        self._names += 1
        return f"v{self._names}"


def encoder(graph: Graph, shape: Shape) -> Iterator[bytes]:
    """An ONNX file: token ids and mask in, one unit vector per text out (the mean of its tokens' last states)."""
    state = _embedded(graph, shape)
    mask = graph.node("Cast", "attention_mask", given={"to": FLOAT})
    hidden = graph.node("Mul", graph.node("Sub", graph.number(1), mask), graph.number(_MASKED))
    hidden = graph.node("Unsqueeze", hidden, graph.numbers(1, 2))
    for layer in range(shape.layers):
        state = _layer(graph, f"encoder.layer.{layer}", state, hidden, shape)
    _pooled(graph, state, mask)
    return graph.file(shape.width)


def _embedded(graph: Graph, shape: Shape) -> str:
    words = graph.words(INPUTS[0])
    length = graph.node("Gather", graph.node("Shape", INPUTS[0]), graph.numbers(1))
    places = graph.node("Slice", graph.weight("embeddings.position_embeddings.weight"), graph.numbers(0), length)
    kind = graph.node(
        "Gather", graph.weight("embeddings.token_type_embeddings.weight"), graph.constant(np.array(0, np.int64))
    )
    state = graph.node("Add", graph.node("Add", words, kind), places)
    return graph.normed(state, "embeddings.LayerNorm", shape.epsilon)


def _layer(graph: Graph, name: str, state: str, hidden: str, shape: Shape) -> str:
    mixed = _attention(graph, f"{name}.attention.self", state, hidden, shape)
    attended = graph.dense(mixed, graph.layer(f"{name}.attention.output.dense"))
    state = graph.normed(graph.node("Add", attended, state), f"{name}.attention.output.LayerNorm", shape.epsilon)
    inner = graph.gelu(graph.dense(state, graph.layer(f"{name}.intermediate.dense")))
    out = graph.dense(inner, graph.layer(f"{name}.output.dense", input_min=GELU_MIN))
    return graph.normed(graph.node("Add", out, state), f"{name}.output.LayerNorm", shape.epsilon)


def _attention(graph: Graph, name: str, state: str, hidden: str, shape: Shape) -> str:
    size = shape.width // shape.heads
    all_three = graph.dense(state, graph.layer(*(f"{name}.{part}" for part in ("query", "key", "value"))))
    apart = graph.node("Reshape", all_three, graph.numbers(0, 0, 3, shape.heads, size))
    apart = graph.node("Transpose", apart, given={"perm": [2, 0, 3, 1, 4]})
    query, key, value = (
        graph.node("Gather", apart, graph.constant(np.array(part, np.int64)), given={"axis": 0}) for part in range(3)
    )
    scores = graph.node("MatMul", query, graph.node("Transpose", key, given={"perm": [0, 1, 3, 2]}))
    scores = graph.node("Add", graph.node("Div", scores, graph.number(sqrt(size))), hidden)
    shares = graph.node("Softmax", scores, given={"axis": -1})
    mixed = graph.node("Transpose", graph.node("MatMul", shares, value), given={"perm": [0, 2, 1, 3]})
    return graph.node("Reshape", mixed, graph.numbers(0, 0, shape.width))


def _pooled(graph: Graph, state: str, mask: str) -> None:
    """The mean over the tokens that are no padding, made one long."""
    spread = graph.node("Unsqueeze", mask, graph.numbers(2))
    total = graph.node("ReduceSum", graph.node("Mul", state, spread), graph.numbers(1), given={"keepdims": 0})
    count = graph.node("ReduceSum", mask, graph.numbers(1), given={"keepdims": 1})
    mean = graph.node("Div", total, graph.node("Max", count, graph.number(1e-9)))
    graph.node("LpNormalization", mean, out=OUTPUT, given={"axis": 1, "p": 2})


# --- protobuf --------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers are written as they stand in 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _attribute(name: str, value: Attribute) -> bytes:
    """AttributeProto: its name, its value in the field of its type, and the number of that type."""
    match value:
        case float():
            return _text(1, name) + _key(2, 5) + struct.pack("<f", value) + _number(20, 1)
        case int():
            return _text(1, name) + _number(3, value) + _number(20, 2)
        case list():
            return _text(1, name) + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _value(name: str, kind: int, dims: Sequence[str | int]) -> bytes:
    """ValueInfoProto of a tensor; a dimension that is not known has a name."""
    sizes = (_text(2, dim) if isinstance(dim, str) else _number(1, dim) for dim in dims)
    shape = b"".join(_bytes(1, size) for size in sizes)
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))
