"""Port to an embedding model on this machine: texts in, vectors out; similar texts have near vectors."""

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    name: str
    dimensions: int

    def why_not(self) -> str | None:
        """The missing part and how to get it, in one sentence; None when texts can be embedded."""
        ...

    async def embed(self, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """One unit vector per text, as little-endian 32-bit floats; `patient` for background work. Raises
        ModelError."""
        ...

    async def close(self) -> None: ...
