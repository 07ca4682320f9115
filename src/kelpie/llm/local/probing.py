"""Detection of the model server at an address and its models: it asks the server itself, and guesses nothing.

The setting's name only decides which kind is tried first. The context window is the one the server really gives its
model, and a hidden model has a reason. `local/listings` parses each server's answers.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.interface import EmbeddingInfo, HiddenModel, ModelInfo
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy
from kelpie.llm.wire.http_channel import Channel

TEXT_BYTES_MAX = 4096
_UNREACHED = (ModelFault.connection, ModelFault.timeout)


@dataclass(frozen=True, slots=True)
class ProbedServer:
    """A server and its models. `fixed` are models whose context window is set in the server.

    `embeddings` without dimensions (0) are those whose size must be measured. `ids` has the server's own id of each
    model that is listed under another name.
    """

    server: str  # "ollama", "lmstudio", "vllm", "llamacpp", "localai", or "openai" for any other compatible one
    models: tuple[ModelInfo, ...] = ()
    hidden: tuple[HiddenModel, ...] = ()
    embeddings: tuple[EmbeddingInfo, ...] = ()
    fixed: frozenset[str] = frozenset()
    ids: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a model's download to the server; bytes where they are known."""

    status: str
    completed: int | None = None
    total: int | None = None


class Asker:
    """Sends one server a series of requests within one time limit. A refusal is an answer: None."""

    def __init__(self, channel: Channel, limits: RetryLimits) -> None:
        self.endpoint = channel.endpoint
        self.refusal: ModelError | None = None
        self._channel = channel
        self._patience = RetryPolicy(limits.for_listing(attempts=1))

    async def json(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The JSON object at this path; None when the server has none there. Raises ModelError when it is gone."""
        try:
            data = await self.read(path, body)
        except ModelError as error:
            return self._refused(error)
        return None if data.get("error") else data  # some answer 200 and an error to what they do not know

    async def read(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object at this path. Raises ModelError when the server has none there."""
        encoded = None if body is None else orjson.dumps(body)
        async with self._channel.open(path, self._patience, body=encoded) as (response, _):
            return await self._channel.read_json(response)

    async def text(self, path: str) -> str:
        """The beginning of the text at this path, empty when there is none. Raises ModelError when it is gone."""
        try:
            async with self._channel.open(path, self._patience) as (response, _):
                return (await response.aread())[:TEXT_BYTES_MAX].decode("utf-8", "replace")
        except ModelError as error:
            self._refused(error)
            return ""

    def unknown(self) -> ModelError:
        """The error for an address at which no server that we know answers."""
        if self.refusal is not None and self.refusal.kind is ModelFault.authentication:
            return self.refusal
        at = self.endpoint
        return provider_errors.unreadable(at, f"no supported model server answers at {at.shown}", "")

    def _refused(self, error: ModelError) -> None:
        if error.kind in _UNREACHED:
            raise error
        if self.refusal is None or error.kind is ModelFault.authentication:
            self.refusal = error


async def lines(channel: Channel, path: str, body: Mapping[str, Any], limits: RetryLimits) -> AsyncGenerator[Any, None]:
    """JSON objects that a server sends one a line. Raises ModelError, also for an error in a line."""
    opened = channel.open(path, RetryPolicy(limits), body=orjson.dumps(body), model=body.get("model"), streams=True)
    async with opened as (response, _):
        async for line in response.aiter_lines():
            if not line.strip():
                continue
            data = channel.parse(line)
            if data.get("error"):
                raise provider_errors.complained(channel.endpoint, data, model=body.get("model"))
            yield data
