"""The `Embedder` port in the simulation: texts that share words are near, which is all the similarity a check needs.

A vector is a pure function of the text, so a check can compute what is stored; the delay, and the failures of a model
and of its process, are drawn from the run. A process that was ended is started again by the next text, which waits.
"""

import asyncio
import hashlib
import math
import re
import struct
from collections.abc import Sequence
from functools import lru_cache

from kelpie.core.errors import ModelError, ModelFault
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node

NAME = "hashing"
HANDLE = f"kelpie/{NAME}"
DIMENSIONS = 64
EMBED_S = (0.001, 0.05)
START_S = (0.3, 3.0)  # of a process
SILENCE_S = 24 * 3600.0
PLACE = "embedding.local"
PROCESS = "embedding.process"

_WORD = re.compile(r"\w+")


class SimEmbedder:
    """The embedding model of one life of a node."""

    name = NAME
    dimensions = DIMENSIONS

    def __init__(self, loop: SimLoop, faults: Faults, node: Node) -> None:
        self._rng = loop.rng(f"embedder/{node}")
        self._starts = loop.rng(f"embedder/{node}/process")
        self._faults = faults
        self._ended = False

    def why_not(self) -> str | None:
        return "its files are not here" if self._faults.fires(Fault.embedding_fail, "embedding.missing") else None

    async def embed(self, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        if self._faults.fires(Fault.embedding_timeout, PLACE):
            await asyncio.sleep(SILENCE_S)
        if self._ended:
            await asyncio.sleep(self._starts.uniform(*START_S))
            self._ended = False
        if self._faults.fires(Fault.process_crash, PROCESS):
            self._ended = True
            raise ModelError(ModelFault.server, "The embedding process ended. The server starts another.")
        await asyncio.sleep(self._rng.uniform(*EMBED_S))
        if self._faults.fires(Fault.embedding_fail, PLACE):
            raise ModelError(ModelFault.rate_limit, "Too many texts wait to be embedded.", hint="Try again.")
        return [vector_of(text, DIMENSIONS) for text in texts]

    async def close(self) -> None:
        return


@lru_cache(maxsize=4096)
def vector_of(text: str, dimensions: int) -> bytes:
    """The unit vector of a text, as little-endian 32-bit floats: each of its words is a direction."""
    values = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=16).digest()
        for at in range(0, 16, 2):
            values[(digest[at] << 8 | digest[at + 1]) % dimensions] += 1.0 if digest[at] & 1 else -1.0
    values[0] += 0.25  # words may cancel each other, and a vector must have a length
    length = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{dimensions}f", *(value / length for value in values))
