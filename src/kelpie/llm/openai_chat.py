"""The OpenAI chat completions protocol, as OpenAI and the many servers compatible with it speak it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import orjson
from httpx_sse import EventSource

from kelpie.core.errors import ModelError
from kelpie.llm import faults
from kelpie.llm.call_ids import made_call_id
from kelpie.llm.catalog import EMBEDDING_DIMENSIONS, chats, context_window, max_output_tokens
from kelpie.llm.channel import Channel, PatientStream
from kelpie.llm.faults import Endpoint
from kelpie.llm.openai_body import encode_request
from kelpie.llm.openai_reply import Assembly, Delta, Unreadable
from kelpie.llm.port import EmbeddingInfo, Event, ModelInfo, Request
from kelpie.llm.retry import Limits, Patience, retried
from kelpie.world.world import World

LISTING_S_MAX = 20.0
TAIL_S_MAX = 10.0  # for what may follow the end of the model's words: its usage and the end mark
DRAIN_S_MAX = 0.2  # for the end of the HTTP body after the end mark, so that the connection can be used again


class OpenAIChat:
    """A provider that speaks this protocol."""

    def __init__(self, world: World, endpoint: Endpoint, limits: Limits | None = None) -> None:
        self.name = endpoint.provider
        self._endpoint = endpoint
        self._limits = limits or Limits()
        self._world = world
        self._channel = Channel(world, endpoint)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Asks the model. Raises ModelError, also after some deltas were given."""
        attempt = partial(self._ask, request, encode_request(request))
        async with aclosing(retried(attempt, self._limits, self._world.random)) as events:
            async for event in events:
                yield event

    async def models(self) -> Sequence[ModelInfo]:
        """The chat models that the server lists. Raises ModelError."""
        limits = replace(self._limits, attempts=2, total_s=LISTING_S_MAX)
        found: list[ModelInfo] = []
        async with aclosing(retried(self._list, limits, self._world.random)) as models:
            async for model in models:
                found.append(model)
        return sorted(found, key=lambda model: model.name)

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding models we know the size of; servers do not tell which of theirs they are."""
        return [
            EmbeddingInfo(f"{self.name}/{name}", name, self.name, "openai", dimensions, self._endpoint.shown)
            for name, dimensions in EMBEDDING_DIMENSIONS.items()
        ]

    async def close(self) -> None:
        await self._channel.close()

    async def _ask(self, request: Request, body: bytes, patience: Patience) -> AsyncGenerator[Event, None]:
        assembly = Assembly(partial(made_call_id, request))
        opened = self._channel.open(
            "chat/completions", patience, body=body, model=request.model, streams=request.deltas
        )
        async with opened as (response, stream):
            if request.deltas and "text/event-stream" in response.headers.get("content-type", ""):
                async with aclosing(self._follow(request, response, stream, assembly)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                for delta in await self._whole(request, response, assembly):
                    yield delta
        try:
            reply = assembly.reply()
        except Unreadable as error:
            raise faults.unreadable(self._endpoint, str(error), "") from None
        yield reply

    def _read(self, assembly: Assembly, data: Mapping[str, Any], field: str) -> list[Delta]:
        try:
            return list(assembly.read(data, field))
        except Unreadable as error:
            raise faults.unreadable(self._endpoint, str(error), orjson.dumps(data)) from None

    async def _whole(self, request: Request, response: httpx.Response, assembly: Assembly) -> list[Event]:
        """Reads a reply in one piece; a server may send one although a stream was asked for."""
        data = await self._channel.read_json(response)
        if data.get("error"):
            raise faults.complained(self._endpoint, data, model=request.model)
        deltas = self._read(assembly, data, "message")
        return [*deltas] if request.deltas else []

    async def _follow(
        self, request: Request, response: httpx.Response, stream: PatientStream, assembly: Assembly
    ) -> AsyncGenerator[Event, None]:
        """Reads a stream to its end. A stream is whole when the model said that it finished, with the end mark or
        without it; a connection that breaks after that takes nothing away."""
        done = False
        try:
            async with aclosing(EventSource(response).aiter_sse()) as events:
                async for event in events:
                    if done or not event.data:
                        continue
                    if event.data == "[DONE]":
                        done, stream.pause_s_max = True, DRAIN_S_MAX
                        continue
                    data = self._channel.parse(event.data)
                    if data.get("error") or event.event == "error":
                        raise faults.complained(self._endpoint, data, model=request.model)
                    for delta in self._read(assembly, data, "delta"):
                        yield delta
                    if assembly.finished:
                        stream.pause_s_max = TAIL_S_MAX
        except (ModelError, httpx.TransportError):
            if not (done or assembly.finished):
                raise
        if not (done or assembly.finished):
            raise faults.cut_short(self._endpoint)

    async def _list(self, patience: Patience) -> AsyncGenerator[ModelInfo, None]:
        async with self._channel.open("models", patience) as (response, _):
            data = await self._channel.read_json(response)
        entries = data.get("data")
        if not isinstance(entries, list):
            raise faults.unreadable(self._endpoint, "it is not a list of models", str(data))
        for entry in entries:
            name = entry.get("id") if isinstance(entry, dict) else None
            if isinstance(name, str) and name and chats(name):
                yield self._info(name, entry)

    def describe(self, name: str) -> ModelInfo:
        return self._info(name, {})

    def _info(self, name: str, entry: Mapping[str, Any]) -> ModelInfo:
        return ModelInfo(
            handle=f"{self.name}/{name}",
            name=name,
            provider_name=self.name,
            provider_type="openai",
            context_window=context_window(name, entry),
            endpoint=self._endpoint.shown,
            max_tokens=max_output_tokens(name),
        )
