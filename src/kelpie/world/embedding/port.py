"""The port to a model on this machine that turns texts into vectors whose nearness is nearness of meaning."""

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    name: str
    dimensions: int

    def why_not(self) -> str | None:
        """What is missing and how to get it, in one sentence; None when texts can be embedded."""
        ...

    async def embed(self, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """One unit vector per text, as little-endian 32-bit floats; `patient` when nobody waits. Raises ModelError."""
        ...

    async def close(self) -> None: ...
