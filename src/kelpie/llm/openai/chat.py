"""The OpenAI chat completions protocol, for OpenAI and the many compatible servers."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from kelpie.core.errors import ModelError
from kelpie.llm.catalog import known_models
from kelpie.llm.catalog.known_models import EMBEDDING_DIMENSIONS
from kelpie.llm.catalog.openai_traits import reasons
from kelpie.llm.openai import embeddings as openai_embeddings
from kelpie.llm.openai.chat_reply import Assembly
from kelpie.llm.openai.chat_request import encode_request
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import EmbeddingInfo, Event, HiddenModel, ModelInfo, Request
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy, retried
from kelpie.llm.wire.call_ids import made_call_id
from kelpie.llm.wire.exchange import Call, Exchange
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World


class ChatCall:
    """A request as chat completions."""

    def __init__(self, request: Request, path: str, named: str | None = None) -> None:
        """`named` is the provider's name of the model, where that does not show the kind of model."""
        self.path = path
        self._request = request
        self._body = encode_request(request, named)

    def body(self) -> bytes:
        return self._body

    def assembly(self) -> Assembly:
        return Assembly(partial(made_call_id, self._request), reasons=reasons(self._request.model))

    def repair(self, error: ModelError) -> bool:
        return False


class OpenAIChat:
    """A provider with this protocol."""

    kind = "openai"
    name_prefix = ""  # that the listing puts before every name

    def __init__(self, world: World, endpoint: Endpoint, limits: RetryLimits | None = None) -> None:
        self.name = endpoint.provider
        self.hidden: list[HiddenModel] = []  # as of the last listing
        self._endpoint = endpoint
        self._limits = limits or RetryLimits()
        self._world = world
        self._channel = self._connect()
        self._exchange = Exchange(world, self._channel, self._limits)

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model. Raises ModelError, also after some deltas were yielded."""
        return self._exchange.stream(request, self._call(request))

    async def payload(self, request: Request) -> bytes:
        return self._call(request).body()

    async def models(self) -> Sequence[ModelInfo]:
        """The chat models that the server lists. Raises ModelError."""
        limits = self._limits.for_listing(attempts=2)
        found: list[ModelInfo] = []
        async with aclosing(retried(self._list, limits, self._world.random, quiet=True)) as models:
            async for model in models:
                found.append(model)
        return sorted(found, key=lambda model: model.name)

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding models of known size; servers do not report which of their models they are."""
        return [
            EmbeddingInfo(f"{self.name}/{name}", name, self.name, self.kind, dimensions, self._endpoint.shown)
            for name, dimensions in EMBEDDING_DIMENSIONS.items()
        ]

    async def embed(self, info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """See `EmbeddingProvider.embed`. Raises ModelError."""
        channel, limits = self._channel, self._limits
        return await openai_embeddings.embed(self._world, channel, limits, info.name, info.dimensions, texts)

    async def close(self) -> None:
        await self._channel.close()

    def _offers(self, name: str) -> bool:
        return known_models.chats(name)

    def _connect(self) -> Channel:
        return Channel(self._world, self._endpoint)

    def _call(self, request: Request) -> Call:
        return ChatCall(request, "chat/completions")

    async def _list(self, patience: RetryPolicy) -> AsyncGenerator[ModelInfo, None]:
        async with self._channel.open("models", patience) as (response, _):
            data = await self._channel.read_json(response)
        entries = data.get("data")
        if not isinstance(entries, list):
            raise provider_errors.unreadable(self._endpoint, "it is not a list of models", str(data))
        self.hidden = []
        for entry in entries:
            name = entry.get("id") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name:
                continue
            name = name.removeprefix(self.name_prefix)
            if self._offers(name):
                yield self._info(name, entry)
            else:
                self.hidden.append(
                    HiddenModel(name, "its name shows that it is not a chat model, or does not use this protocol")
                )

    def describe(self, name: str) -> ModelInfo:
        return self._info(name, {})

    def _info(self, name: str, entry: Mapping[str, Any]) -> ModelInfo:
        return known_models.info(self.kind, self._endpoint, name, entry)
