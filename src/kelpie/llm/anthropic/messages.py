"""Anthropic's messages protocol, for Anthropic and compatible servers."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from kelpie.core.errors import ModelError
from kelpie.llm.anthropic.messages_reply import Assembly
from kelpie.llm.anthropic.messages_request import encode_request, forget_thoughts
from kelpie.llm.catalog import known_models, thinking_defaults
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import EmbeddingInfo, Event, ModelInfo, Request
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy, retried
from kelpie.llm.wire.call_ids import made_call_id
from kelpie.llm.wire.exchange import Exchange
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

VERSION = "2023-06-01"
SPEAKS = "Anthropic's API or one compatible with it, such as https://api.anthropic.com"
LISTING_PAGES_MAX = 10
PAGE = 1000


class MessagesCall:
    """A request as Anthropic's messages."""

    path = "messages"

    def __init__(self, request: Request) -> None:
        self._request = request
        self._thoughts = True
        self._body = encode_request(request)

    def body(self) -> bytes:
        return self._body

    def assembly(self) -> Assembly:
        return Assembly(partial(made_call_id, self._request))

    def repair(self, error: ModelError) -> bool:
        """Removes thoughts that the provider refused. It accepts them only from certain models and only in the original
        conversation: an edit of the system prompt, compaction or another model can invalidate them for ever, and block
        the agent."""
        said = (error.detail or "").lower()
        if not self._thoughts or "thinking" not in said:
            return False
        forgotten = forget_thoughts(self._request)
        before, self._thoughts = self._body, False
        self._body = encode_request(self._request, thoughts=False)
        return forgotten or self._body != before


class Anthropic:
    """A provider with this protocol. The base URL may have its /v1 or not."""

    kind = "anthropic"

    def __init__(self, world: World, endpoint: Endpoint, limits: RetryLimits | None = None) -> None:
        self.name = endpoint.provider
        root = endpoint.base_url.rstrip("/").removesuffix("/v1")
        endpoint = self._endpoint = replace(endpoint, base_url=f"{root}/v1", speaks=SPEAKS)
        self._limits = limits or RetryLimits()
        self._world = world
        headers = {"anthropic-version": VERSION}
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        self._channel = Channel(world, endpoint, headers)
        self._exchange = Exchange(world, self._channel, self._limits)

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model. Raises ModelError, also after some deltas were yielded."""
        return self._exchange.stream(request, MessagesCall(request))

    async def payload(self, request: Request) -> bytes:
        return MessagesCall(request).body()

    async def models(self) -> Sequence[ModelInfo]:
        """The models that the server lists. Raises ModelError."""
        limits = self._limits.for_listing(attempts=2)
        found: list[ModelInfo] = []
        async with aclosing(retried(self._list, limits, self._world.random, quiet=True)) as pages:
            async for page in pages:
                found += page
        return sorted(found, key=lambda model: model.name)

    def describe(self, name: str) -> ModelInfo:
        return self._info(name, {})

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """None: Anthropic offers no embedding models."""
        return []

    async def close(self) -> None:
        await self._channel.close()

    async def _list(self, patience: RetryPolicy) -> AsyncGenerator[list[ModelInfo], None]:
        found: list[ModelInfo] = []
        after = ""
        for _ in range(LISTING_PAGES_MAX):
            async with self._channel.open(f"models?limit={PAGE}{after}", patience) as (response, _):
                data = await self._channel.read_json(response)
            entries = data.get("data")
            if not isinstance(entries, list):
                raise provider_errors.unreadable(self._endpoint, "it is not a list of models", str(data))
            for entry in entries:
                name = entry.get("id") if isinstance(entry, dict) else None
                if isinstance(name, str) and name and entry.get("lifecycle") != "retired":
                    found.append(self._info(name, entry))
            last = data.get("last_id")
            if not data.get("has_more") or not isinstance(last, str):
                break
            after = f"&after_id={quote(last, safe='')}"
        yield found

    def _info(self, name: str, entry: Mapping[str, Any]) -> ModelInfo:
        info = known_models.info(self.kind, self._endpoint, name, entry)
        info = replace(info, settings=thinking_defaults.of_claude(info.reasoning))
        longest = entry.get("max_tokens")
        if isinstance(longest, int) and longest > 0:
            return replace(info, max_tokens=min(longest, self._endpoint.output_tokens))
        return info
