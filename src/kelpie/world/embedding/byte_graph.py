"""The sentence encoder with weights and activations of eight bits: about 2.5 times as fast and half as large.

Each row of activations has a scale of its own, so a text has the same vector alone and among others. A few channels are
much larger than the rest and would take the precision of all others: every channel is divided by a factor, by which its
weights are multiplied. The factors follow from the activations of a few sentences, which `calibration` computes. The
table of tokens has 16 bits.
"""

from collections.abc import Mapping

import numpy as np

from kelpie.world.embedding.onnx_graph import FLOAT, RUNTIME, UINT8, Array, Dense, Graph

_MIDDLE, _HALF_RANGE, _RANGE = 128, 127, 255
_BALANCE = 0.6  # how much of a channel's size its weights take over; between 0.5 and 0.75 makes no difference
_LEAST = 1e-9


class ByteGraph(Graph):
    """A graph whose dense layers multiply bytes. `sizes` is the mean size of each input of a layer, by its name."""

    def __init__(self, weights: Mapping[str, Array], sizes: Mapping[str, Array], ids: str) -> None:
        super().__init__(weights)
        self._sizes = sizes
        self._shape = self.node("Shape", ids)
        zeros = self.node("Mul", self.node("Reshape", ids, self.numbers(-1)), self.numbers(0))
        self._zeros = self.node("Cast", zeros, given={"to": UINT8})
        self._middles = self.node("Cast", self.node("Add", zeros, self.numbers(_MIDDLE)), given={"to": UINT8})

    def dense(self, state: str, layer: Dense) -> str:
        """See `Graph.dense`."""
        outputs, inputs = layer.weight.shape
        rows = self.node("Reshape", state, self.numbers(-1, inputs))
        weight, bias = layer.weight, layer.bias
        if layer.input_min is None:
            factors = _factors(self._sizes[layer.name], weight)
            weight = weight * factors
            rows = self.node("Mul", rows, self.constant((1 / factors).astype(np.float32)))
            largest = self.node("ReduceMax", self.node("Abs", rows), self.numbers(-1), given={"keepdims": 1})
            zero, zeros, most = _MIDDLE, self._middles, _HALF_RANGE
        else:  # never below this: all eight bits are for what is above, and the bias takes the difference back
            rows = self.node("Sub", rows, self.number(layer.input_min))
            largest = self.node("ReduceMax", rows, self.numbers(-1), given={"keepdims": 1})
            zero, zeros, most = 0, self._zeros, _RANGE
        scale = self.node("Mul", self.node("Max", largest, self.number(_LEAST)), self.number(1 / most))
        flat = self.node("Reshape", scale, self.numbers(-1))
        read = self.node("QuantizeLinear", rows, flat, zeros, given={"axis": 0})
        small, scales = _bytes_of(weight)
        if layer.input_min is not None:
            bias = bias + layer.input_min * (small * scales[:, None]).sum(axis=1)
        product = self.node(
            "MatMulIntegerToFloat",
            read,
            self.constant(np.ascontiguousarray(small.T)),
            self.number(1),
            self.constant(scales),
            self.constant(np.array(zero, np.uint8)),
            domain=RUNTIME,
        )
        found = self.node("Add", self.node("Mul", product, scale), self.constant(bias.astype(np.float32)))
        return self.node("Reshape", found, self.node("Concat", self._shape, self.numbers(outputs), given={"axis": 0}))

    def words(self, ids: str) -> str:
        """See `Graph.words`."""
        table = self._weights["embeddings.word_embeddings.weight"].astype(np.float16)
        return self.node("Cast", self.node("Gather", self.constant(table), ids), given={"to": FLOAT})

    def gelu(self, state: str) -> str:
        """See `Graph.gelu`; by its approximation, whose error is below that of eight bits."""
        return self.node("FastGelu", state, domain=RUNTIME)


def _factors(sizes: Array, weight: Array) -> Array:
    found = sizes**_BALANCE / np.maximum(np.abs(weight).max(axis=0), _LEAST) ** (1 - _BALANCE)
    return (found / np.exp(np.log(found).mean())).astype(np.float32)


def _bytes_of(weight: Array) -> tuple[Array, Array]:
    """Weights as whole numbers, and the scale of each row."""
    scales = (np.maximum(np.abs(weight).max(axis=1), _LEAST) / _HALF_RANGE).astype(np.float32)
    return np.rint(weight / scales[:, None]).astype(np.int8), scales
