"""OpenAI's models at Azure: chat completions under the deployment names of the operator.

Azure has an undated interface and, for an `api_version`, a dated one, in which the deployment is part of the address. A
deployment's name need not contain its model, so the listing is asked for it.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from kelpie.llm.catalog import known_models, thinking_defaults
from kelpie.llm.openai.chat import ChatCall, OpenAIChat
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import EmbeddingInfo, ModelInfo, Request
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy
from kelpie.llm.wire.exchange import Call
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

LISTING_VERSION = "2023-03-15-preview"  # the only one in which deployments can be listed with an API key
SPEAKS = "an Azure OpenAI resource, such as https://name.openai.azure.com"


class Azure(OpenAIChat):
    """A provider of deployments; `endpoint.models` names them, as `name` or `name=model`, if they cannot be listed."""

    kind = "azure"

    def __init__(self, world: World, endpoint: Endpoint, limits: RetryLimits | None = None) -> None:
        base_url = endpoint.base_url.rstrip("/").removesuffix("/v1").removesuffix("/openai")
        super().__init__(world, replace(endpoint, base_url=base_url, speaks=SPEAKS), limits)
        pairs = [given.partition("=") for given in endpoint.models]
        self._given = {name.strip(): model.strip() or name.strip() for name, _, model in pairs}
        self._models = dict(self._given)

    async def models(self) -> Sequence[ModelInfo]:
        """The deployments that can chat. Raises ModelError."""
        if self._given:
            return [self.describe(name) for name in sorted(self._given)]
        return await super().models()

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """The deployments of embedding models, as far as they are known yet."""
        sizes = known_models.EMBEDDING_DIMENSIONS
        return [
            EmbeddingInfo(f"{self.name}/{name}", name, self.name, self.kind, sizes[model], self._endpoint.shown)
            for name, model in sorted(self._models.items())
            if model in sizes
        ]

    def _connect(self) -> Channel:
        return Channel(self._world, self._endpoint, {"api-key": self._endpoint.api_key or ""})

    def _call(self, request: Request) -> Call:
        named, version = request.model, self._endpoint.api_version
        path = "openai/v1/chat/completions"
        if version:
            path = f"openai/deployments/{quote(named, safe='')}/chat/completions?api-version={quote(version)}"
        return ChatCall(replace(request, model=self._models.get(named, named)), path, named)

    async def _list(self, patience: RetryPolicy) -> AsyncGenerator[ModelInfo, None]:
        path = f"openai/deployments?api-version={LISTING_VERSION}"
        async with self._channel.open(path, patience) as (response, _):
            data = await self._channel.read_json(response)
        entries = data.get("data")
        if not isinstance(entries, list):
            raise provider_errors.unreadable(self._endpoint, "it is not a list of deployments", str(data))
        for entry in entries:
            name = entry.get("id") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name or entry.get("status", "succeeded") != "succeeded":
                continue
            self._models[name] = model = str(entry.get("model") or name)
            if self._offers(model):
                yield self._info(name, {})

    def _info(self, name: str, entry: Mapping[str, Any]) -> ModelInfo:
        model = self._models.get(name, name)
        info = known_models.info(self.kind, self._endpoint, name, entry, known_as=model)
        return replace(info, settings=thinking_defaults.of_openai(model))
