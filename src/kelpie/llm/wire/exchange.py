"""One call to a model over HTTP in any wire format: sent, followed to its end, assembled.

A wire format defines the request (`Call`) and the parser of the answer (`Assembly`); time-outs, retries and broken
answers are handled here once for all of them.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import httpx
import orjson

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.interface import (
    Event,
    ExchangeRecord,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCallDelta,
)
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy, retried
from kelpie.llm.wire.http_channel import Channel, PatientStream
from kelpie.observe import logs
from kelpie.world.http.event_stream import EventReader, ServerEvent
from kelpie.world.world import World

Delta = TextDelta | ReasoningDelta | ToolCallDelta

TAIL_S_MAX = 10.0  # for what may follow the end of the model's words: its usage and the end mark
DRAIN_S_MAX = 0.2  # for the end of the HTTP body after the end mark, so that the connection can be used again
MENDS_MAX = 2

_log = logs.get("llm")


class Unreadable(ValueError):
    """The reply has an invalid form; the text says why. Never leaves this package."""


class Complaint(Exception):
    """The reply is an error in the provider's own form. Never leaves this package."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__()
        self.error = error


class Assembly(Protocol):
    """A reply as far as it has been read. Reading raises Unreadable or Complaint."""

    @property
    def finished(self) -> bool:
        """True if the model has reported its end; its usage may still be missing."""
        ...

    @property
    def done(self) -> bool:
        """True if nothing more of use can come."""
        ...

    def whole(self, data: Mapping[str, Any]) -> Iterable[Delta]:
        """Reads a reply that came in one piece."""
        ...

    def event(self, data: Mapping[str, Any]) -> Iterable[Delta]:
        """Reads one event of a stream."""
        ...

    def reply(self) -> Reply:
        """The whole reply."""
        ...


class Call(Protocol):
    """One request in a wire format."""

    path: str

    def body(self) -> bytes: ...

    def assembly(self) -> Assembly: ...

    def repair(self, error: ModelError) -> bool:
        """Removes from the request what the provider refused, if it is optional; False when it is not."""
        ...


class Exchange:
    """Sends calls to one provider."""

    def __init__(self, world: World, channel: Channel, limits: RetryLimits) -> None:
        self._world = world
        self._channel = channel
        self._endpoint = channel.endpoint
        self._limits = limits

    async def stream(self, request: Request, call: Call) -> AsyncGenerator[Event, None]:
        """Calls the model. Raises ModelError, also after some deltas were yielded."""
        attempt = partial(self._attempt, request, call)
        async with aclosing(retried(attempt, self._limits, self._world.random)) as events:
            async for event in events:
                yield event

    async def _attempt(self, request: Request, call: Call, patience: RetryPolicy) -> AsyncGenerator[Event, None]:
        for mends in range(MENDS_MAX + 1):
            told = False
            try:
                async with aclosing(self._ask(request, call, patience)) as events:
                    async for event in events:
                        told = True
                        yield event
                return
            except ModelError as error:
                refused = error.kind is ModelFault.bad_request and not told
                if not refused or mends == MENDS_MAX or not call.repair(error):
                    raise
                _log.warning(
                    "model_request_reduced",
                    "Provider rejected part of the request; asking again without it",
                    error=error.detail,
                )

    async def _ask(self, request: Request, call: Call, patience: RetryPolicy) -> AsyncGenerator[Event, None]:
        assembly, body = call.assembly(), call.body()
        received: bytes | None = None
        opened = self._channel.open(call.path, patience, body=body, model=request.model, streams=request.deltas)
        async with opened as (response, stream):
            if request.deltas and "text/event-stream" in response.headers.get("content-type", ""):
                async with aclosing(self._follow(request, response, stream, assembly)) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                received = await self._channel.read(response)
                for delta in self._whole(request, response, received, assembly):
                    yield delta
        try:
            reply = assembly.reply()
        except Unreadable as error:
            raise provider_errors.unreadable(self._endpoint, str(error), "") from None
        yield replace(reply, exchanged=ExchangeRecord(body, received))

    def _whole(self, request: Request, response: httpx.Response, body: bytes, assembly: Assembly) -> list[Delta]:
        """Reads a reply in one piece; a server may send one although a stream was requested."""
        data = self._channel.object_in(response, body)
        if data.get("error"):
            raise provider_errors.complained(self._endpoint, data, model=request.model)
        try:
            deltas = list(assembly.whole(data))
        except (Unreadable, Complaint) as error:
            raise self._complaint(error, data, request) from None
        return deltas if request.deltas else []

    async def _follow(
        self, request: Request, response: httpx.Response, stream: PatientStream, assembly: Assembly
    ) -> AsyncGenerator[Delta, None]:
        """Reads a stream to its end. A stream is complete when the model reported its end, with the end mark or without
        it; a connection that breaks after that loses nothing."""
        done, reader = False, EventReader()
        try:
            async with aclosing(response.aiter_bytes()) as pieces:  # pyright: ignore[reportArgumentType]
                async for piece in pieces:
                    for event in reader.feed(piece):
                        if done or not event.data:
                            continue
                        if event.data == "[DONE]":
                            done, stream.pause_s_max = True, DRAIN_S_MAX
                            continue
                        for delta in self._read(assembly, event, request):
                            yield delta
                        if assembly.finished:
                            done = assembly.done
                            stream.pause_s_max = DRAIN_S_MAX if done else TAIL_S_MAX
        except (ModelError, httpx.TransportError):
            if not (done or assembly.finished):
                raise
        if not (done or assembly.finished):
            raise provider_errors.cut_short(self._endpoint)

    def _read(self, assembly: Assembly, event: ServerEvent, request: Request) -> list[Delta]:
        data = self._channel.parse(event.data)
        if data.get("error") or event.name == "error":
            raise provider_errors.complained(self._endpoint, data, model=request.model)
        try:
            return list(assembly.event(data))
        except (Unreadable, Complaint) as error:
            raise self._complaint(error, data, request) from None

    def _complaint(self, error: Unreadable | Complaint, data: Mapping[str, Any], request: Request) -> ModelError:
        if isinstance(error, Complaint):
            return provider_errors.complained(self._endpoint, error.error, model=request.model)
        return provider_errors.unreadable(self._endpoint, str(error), orjson.dumps(data))
