"""A rig whose model can also embed texts: a few words that mean the same share a direction, and it can be held."""

import asyncio
import hashlib
import random
import re
import struct

from kelpie.core.agents.agent import NewAgent
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.interface import EmbeddingInfo
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from tests.agent.conftest import Rig, ScriptModel

EMBEDDING = "test/embed"
DIMENSIONS = 64
MEANINGS = ({"feline", "cat", "kitten", "moggy"}, {"auto", "car", "vehicle"}, {"doctor", "physician"})


def _direction(word: str) -> list[float]:
    meant = next((str(at) for at, words in enumerate(MEANINGS) if word in words), word)
    rng = random.Random(hashlib.sha256(meant.encode()).digest())
    return [rng.gauss(0, 1) for _ in range(DIMENSIONS)]


def vector_of(text: str) -> bytes:
    words = re.findall(r"\w+", text.lower()) or [""]
    summed = [sum(column) for column in zip(*map(_direction, words), strict=True)]
    return struct.pack(f"<{DIMENSIONS}f", *summed)


class EmbeddingModel(ScriptModel):
    """`held` keeps it from answering, `broken` makes it fail; `asked` is set when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded: list[str] = []
        self.held: asyncio.Event | None = None
        self.broken = False
        self.asked = asyncio.Event()

    async def embeddings(self):
        return [EmbeddingInfo(EMBEDDING, "embed", "test", "openai", DIMENSIONS, "test")]

    async def embed(self, info, texts, *, patient=False):
        self.asked.set()
        if self.held is not None:
            await self.held.wait()
        if self.broken:
            raise ModelError(ModelFault.server, "the model is broken")
        self.embedded += texts
        return [vector_of(text) for text in texts]


class EmbeddingRig(Rig):
    def __init__(self, path, **settings) -> None:
        super().__init__(path, default_embedding=EMBEDDING, **settings)
        self.model = EmbeddingModel()

    async def agent(self, *tools, **fields):
        fields = {"tools": tools, "include_base_tools": False, "timezone": "UTC", **fields}
        return (await self.kelpie.api().agents.create(NewAgent(**fields))).agent.id

    async def embed_all(self) -> None:
        """What the background would do in a while."""
        embedding = EmbeddingBacklog(self.kelpie.world, self.kelpie.runtime.embeddings)
        while await embedding.work():
            pass
