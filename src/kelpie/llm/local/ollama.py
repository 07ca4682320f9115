"""Ollama's own chat protocol: one JSON object a line, with the times of loading and inference in the last; and its
model management.

It never asks for a smaller context window than before: every change makes Ollama load the model anew.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import orjson

from kelpie.core.conversations.messages import Part, Reasoning, Text, ToolCall, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.local.ollama_request import encode_request, window_for
from kelpie.llm.local.probing import ProbedServer, Progress, lines
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
from kelpie.llm.wire.call_ids import made_call_id
from kelpie.llm.wire.exchange import Delta, Unreadable
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

PULL_ATTEMPTS = 5


class Ollama:
    """Client of one Ollama server."""

    def __init__(self, world: World, channel: Channel, limits: RetryLimits) -> None:
        self._world = world
        self._channel = channel
        self._limits = limits
        self._windows: dict[str, int] = {}  # the largest asked for so far, by model

    async def stream(self, request: Request, found: ProbedServer) -> AsyncGenerator[Event, None]:
        """Calls the model. Raises ModelError, also after some deltas were yielded."""
        window = self._num_ctx(request, found)
        if window is not None:
            self._windows[request.model] = window
        body = encode_request(request, window)
        attempt = partial(self._ask, request, body)
        async with aclosing(retried(attempt, self._limits, self._world.random)) as events:
            async for event in events:
                yield event

    def payload(self, request: Request, found: ProbedServer) -> bytes:
        """The body of the call, without making it."""
        return encode_request(request, self._num_ctx(request, found))

    async def pull(self, name: str) -> AsyncGenerator[Progress, None]:
        """Pulls a model; an interrupted transfer is resumed. Raises ModelError."""
        async with aclosing(_persistently(partial(self._pull, name))) as steps:
            async for step in steps:
                yield step

    async def remove(self, name: str) -> None:
        """Deletes a model. Raises ModelError."""
        patience = RetryPolicy(self._limits)
        body = orjson.dumps({"model": name})
        async with self._channel.open("api/delete", patience, body=body, model=name, method="DELETE") as (response, _):
            await response.aread()
        self._windows.pop(name, None)

    def _num_ctx(self, request: Request, found: ProbedServer) -> int | None:
        if request.model in found.fixed:
            return None
        window = next((model.context_window for model in found.models if model.name == request.model), None)
        return max(window_for(request, window), self._windows.get(request.model, 0))

    async def _ask(self, request: Request, body: bytes, patience: RetryPolicy) -> AsyncGenerator[Event, None]:
        assembly = Assembly(partial(made_call_id, request))
        opened = self._channel.open("api/chat", patience, body=body, model=request.model, streams=request.deltas)
        async with opened as (response, _):
            try:
                async for line in response.aiter_lines():
                    if not line.strip():
                        continue
                    deltas = self._read(assembly, self._channel.parse(line), request)
                    for delta in deltas if request.deltas else ():
                        yield delta
            except (ModelError, httpx.TransportError):
                if not assembly.finished:
                    raise
        if not assembly.finished:
            raise provider_errors.cut_short(self._channel.endpoint)
        try:
            reply = assembly.reply()
        except Unreadable as error:
            raise provider_errors.unreadable(self._channel.endpoint, str(error), "") from None
        yield replace(reply, exchanged=ExchangeRecord(body, None))

    def _read(self, assembly: "Assembly", data: Mapping[str, Any], request: Request) -> list[Delta]:
        if data.get("error"):
            raise provider_errors.complained(self._channel.endpoint, data, model=request.model)
        try:
            return list(assembly.read(data))
        except Unreadable as error:
            raise provider_errors.unreadable(self._channel.endpoint, str(error), orjson.dumps(data)) from None

    async def _pull(self, name: str) -> AsyncGenerator[Progress, None]:
        done = False
        limits = replace(self._limits, total_s=self._limits.pull_s)
        asked = lines(self._channel, "api/pull", {"model": name, "stream": True}, limits)
        async with aclosing(asked) as told:
            async for data in told:
                status = str(data.get("status") or "")
                done = done or status == "success"
                yield Progress(status, _count(data.get("completed")), _count(data.get("total")))
        if not done:
            raise provider_errors.cut_short(self._channel.endpoint)


async def _persistently(once: Callable[[], AsyncGenerator[Progress, None]]) -> AsyncGenerator[Progress, None]:
    """Retries after an interruption, a few times: the server keeps the part that has arrived."""
    for attempt in range(1, PULL_ATTEMPTS + 1):
        arrived = False
        try:
            async with aclosing(once()) as steps:
                async for step in steps:
                    arrived = True
                    yield step
            return
        except ModelError as error:
            broke = error.kind in (ModelFault.connection, ModelFault.timeout) and arrived
            if not broke or attempt == PULL_ATTEMPTS:
                raise


class Assembly:
    """The reply as far as it has been read."""

    def __init__(self, made_id: Callable[[int], str]) -> None:
        self.finished = False
        self._made_id = made_id
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._reason = "stop"
        self._usage = Usage()

    def read(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        """Reads one object. Raises Unreadable."""
        said = data.get("message")
        if isinstance(said, dict):
            yield from self._message(said)
        elif not data.get("done"):
            raise Unreadable("it has no message")
        if data.get("done"):
            self.finished = True
            self._reason = str(data.get("done_reason") or "stop")
            self._usage = _usage(data)

    def reply(self) -> Reply:
        """The whole reply. Raises Unreadable when it is empty."""
        content: list[Part] = [Reasoning("".join(self._thoughts))] if self._thoughts else []
        content += [Text("".join(self._text))] if self._text else []
        if not content and not self._calls and self._reason != "length":
            raise Unreadable("it is empty")
        finish = "tool_calls" if self._calls else "length" if self._reason == "length" else "stop"
        return Reply(tuple(content), tuple(self._calls), finish, self._usage)

    def _message(self, said: Mapping[str, Any]) -> Iterator[Delta]:
        thought, text = said.get("thinking"), said.get("content")
        if isinstance(thought, str) and thought:
            self._thoughts.append(thought)
            yield ReasoningDelta(thought)
        if isinstance(text, str) and text:
            self._text.append(text)
            yield TextDelta(text)
        for call in said.get("tool_calls") or ():
            yield self._call(call)

    def _call(self, call: object) -> ToolCallDelta:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Unreadable("a tool call is not a function call")
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else orjson.dumps(given or {}).decode()
        index = len(self._calls)
        self._calls.append(ToolCall(self._made_id(index), function["name"], arguments))
        return ToolCallDelta(index, self._calls[-1].id, function["name"], arguments)


def _usage(data: Mapping[str, Any]) -> Usage:
    read, written = _count(data.get("prompt_eval_count")) or 0, _count(data.get("eval_count")) or 0
    times = [_count(data.get(name)) for name in ("prompt_eval_duration", "eval_duration")]
    return Usage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        load_ns=_count(data.get("load_duration")),
        inference_ns=None if times == [None, None] else sum(time or 0 for time in times),
    )


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
