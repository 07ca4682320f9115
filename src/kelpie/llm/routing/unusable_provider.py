"""A stored provider that cannot be called, such as one whose key cannot be decrypted: every use says why."""

from collections.abc import AsyncGenerator, Sequence

from kelpie.core.errors import ModelError
from kelpie.llm.provider.interface import EmbeddingInfo, Event, ModelInfo, Request

_WINDOW = 32_000


class UnusableProvider:
    """A provider without models."""

    def __init__(self, name: str, kind: str, why: ModelError) -> None:
        self.name = name
        self._kind = kind
        self._why = why

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Raises ModelError."""
        raise self._error()
        yield

    def describe(self, name: str) -> ModelInfo:
        return ModelInfo(f"{self.name}/{name}", name, self.name, self._kind, _WINDOW, "", category="byok")

    async def models(self) -> Sequence[ModelInfo]:
        """Raises ModelError."""
        raise self._error()

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """Raises ModelError."""
        raise self._error()

    async def close(self) -> None:
        pass

    def _error(self) -> ModelError:
        return ModelError(self._why.kind, self._why.message, hint=self._why.hint)
