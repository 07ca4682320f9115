"""Calibration of the encoder with eight bits: how large each input of its layers is for ordinary sentences.

The encoder runs here in plain numpy, once, when the graph is built.
"""

from collections.abc import Mapping, Sequence
from math import pi, sqrt

import numpy as np

from kelpie.world.embedding.onnx_graph import Array, Shape

# Of several kinds, because the channels that matter differ: talk, notes, questions, code, errors, other languages.
SENTENCES = (
    "The meeting moved to Thursday at noon; please tell the others.",
    "def add(a, b):\n    return a + b",
    "I love pasta, but my sister is allergic to gluten.",
    "What did she say about her trip to Norway last summer?",
    "Error 503: the service is not available, try again later.",
    "Our dog Max is three years old and likes long walks by the river.",
    "The quarterly report shows a loss of 2.3 million dollars.",
    "user: hi!",
    "Can you remind me to water the plants every Sunday?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Das Wetter ist heute schön, wir gehen an den See.",
    "Le train part à huit heures du matin.",
    "She plays the violin in the city orchestra and teaches children on weekends.",
    "To install it, download the archive and start the server.",
)


def input_sizes(weights: Mapping[str, Array], shape: Shape, texts: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The root mean square of each input of the encoder's layers, by the name of the layer, for texts as token ids."""
    squares: dict[str, Array] = {}
    for text in texts:
        _Encoding(weights, shape, squares).run(np.array(text))
    tokens = sum(map(len, texts))
    return {name: np.maximum(np.sqrt(total / tokens), 1e-6) for name, total in squares.items()}


class _Encoding:
    """One text on its way through the encoder; the squares of what its layers get are added to `squares`."""

    def __init__(self, weights: Mapping[str, Array], shape: Shape, squares: dict[str, Array]) -> None:
        self._weights, self._shape, self._squares = weights, shape, squares

    def run(self, ids: Array) -> None:
        table = self._weights["embeddings.word_embeddings.weight"][ids]
        places = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        state = self._normed(
            table + places + self._weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"
        )
        for layer in range(self._shape.layers):
            state = self._layer(state, f"encoder.layer.{layer}")

    def _layer(self, state: Array, name: str) -> Array:
        mixed = self._attention(state, f"{name}.attention.self")
        attended = self._dense(mixed, f"{name}.attention.output.dense")
        state = self._normed(attended + state, f"{name}.attention.output.LayerNorm")
        inner = self._dense(state, f"{name}.intermediate.dense")
        inner = 0.5 * inner * (1 + np.tanh(sqrt(2 / pi) * (inner + 0.044715 * inner**3)))
        return self._normed(self._dense(inner, f"{name}.output.dense") + state, f"{name}.output.LayerNorm")

    def _attention(self, state: Array, name: str) -> Array:
        heads, size = self._shape.heads, self._shape.width // self._shape.heads
        query, key, value = (
            self._dense(state, f"{name}.{part}").reshape(-1, heads, size).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(1, 0, 2).reshape(-1, self._shape.width)

    def _dense(self, state: Array, name: str) -> Array:
        self._squares[name] = self._squares.get(name, 0.0) + (state**2).sum(axis=0)
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, state: Array, name: str) -> Array:
        apart = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((apart**2).mean(axis=-1, keepdims=True) + self._shape.epsilon)
        return apart / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
