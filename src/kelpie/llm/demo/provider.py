"""The built-in provider `kelpie`: the model `demo`, which needs no key and is deterministic, and the embedding model of
this machine.

The demo makes the quick start, the tests and the simulation work offline, and says plainly that it is a demo. It takes
all its knowledge from the request, so any number of agents can share one.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kelpie.core.conversations.messages import Part, Reasoning, Text, ToolCall, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.demo.script import MARK, Call, Line, Script, read_script
from kelpie.llm.demo.talk import talk
from kelpie.llm.demo.turn import read_turn
from kelpie.llm.openai.chat_request import encode_request
from kelpie.llm.provider.interface import (
    EmbeddingInfo,
    Event,
    ExchangeRecord,
    ModelInfo,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
)
from kelpie.llm.wire.call_ids import made_call_id
from kelpie.world.embedding.port import Embedder

SPEAK = "send_message"
THOUGHT = "The demo model follows its script."

_WORDS = re.compile(r"\s*\S+\s?|\s+")


class DemoProvider:
    """The provider `kelpie` with its one model. With a script it replies with the lines of that, one per call."""

    name = "kelpie"

    def __init__(self, script: Script | None = None, embedder: Embedder | None = None, *, traced: bool = False) -> None:
        """`traced`: its replies say what a provider on the network would have been sent."""
        self._traced = traced
        self._script = script
        self._embedder = embedder
        self._calls = 0

    async def models(self) -> Sequence[ModelInfo]:
        return [self.describe("demo")]

    def describe(self, name: str) -> ModelInfo:
        return ModelInfo(
            handle=f"{self.name}/{name}",
            name=name,
            provider_name=self.name,
            provider_type="openai",  # so that clients, which know a closed set of types, can show it
            context_window=128_000,
            endpoint="built in",
            max_tokens=16_384,
        )

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding model of this machine, if its files exist."""
        local = self._embedder
        if local is None or local.why_not() is not None:
            return []
        return [
            EmbeddingInfo(
                f"{self.name}/{local.name}", local.name, self.name, "hugging-face", local.dimensions, "built in"
            )
        ]

    async def embed(self, info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """See `Embeds.embed`. Raises ModelError."""
        assert self._embedder is not None
        return await self._embedder.embed(texts, patient=patient)

    async def close(self) -> None:
        return

    async def payload(self, request: Request) -> bytes:
        """The request in the format of most models; nothing is sent for this one."""
        return encode_request(request)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answers from the script or by its own rules. Raises the ModelError that a script asks for."""
        line = self._line(request)
        if line.wait_s:
            await asyncio.sleep(line.wait_s)
        calls = tuple(
            ToolCall(made_call_id(request, index), call.name, _json(call.arguments))
            for index, call in enumerate(line.calls)
        )
        if request.deltas:
            for delta in _deltas(line, calls):
                await asyncio.sleep(0)  # let others take their turn between words
                yield delta
        if line.error is not None:
            raise line.error
        reply = _reply(request, line, calls)
        yield replace(reply, exchanged=ExchangeRecord(encode_request(request), None)) if self._traced else reply

    def _line(self, request: Request) -> Line:
        turn = read_turn(request)
        if self._script is not None:
            line = self._script(request) if callable(self._script) else self._next(self._script)
        elif turn.said.startswith(MARK):
            line = read_script(turn.said, turn.steps)
        else:
            line = talk(request, turn)
            return _spoken(
                replace(line, calls=tuple(_with_added_arguments(call, request) for call in line.calls)), request
            )
        return line if line.error or not (line.text or line.calls) else _spoken(line, request)

    def _next(self, lines: Sequence[Line]) -> Line:
        if self._calls >= len(lines):
            raise ModelError(ModelFault.server, f"The script of {len(lines)} replies has no more replies.")
        self._calls += 1
        return lines[self._calls - 1]


def _spoken(line: Line, request: Request) -> Line:
    """The line in the form that the request needs: text becomes a tool call where only those count."""
    if line.calls or request.tool_choice in ("auto", "none") or not request.tools:
        return line
    by_name = {tool.name: tool for tool in request.tools}
    if SPEAK in by_name and request.tool_choice in ("required", SPEAK):
        return replace(line, text="", calls=(_with_added_arguments(Call(SPEAK, {"message": line.text}), request),))
    forced = by_name.get(request.tool_choice) or min(request.tools, key=lambda tool: len(_required(tool)))
    return replace(
        line, text="", calls=(_with_added_arguments(Call(forced.name, _filled(forced.parameters)), request),)
    )


def _with_added_arguments(call: Call, request: Request) -> Call:
    """The call with the arguments that some agents add to every tool."""
    schema = next((tool for tool in request.tools if tool.name == call.name), None)
    if schema is None or isinstance(call.arguments, str):
        return call
    extra: dict[str, Any] = {
        "thinking": THOUGHT,
        "inner_thoughts": THOUGHT,
        "request_heartbeat": call.name != SPEAK,
    }
    wanted = schema.parameters.get("properties") or {}
    return Call(call.name, {name: extra[name] for name in extra if name in wanted} | dict(call.arguments))


def _required(tool: ToolSchema) -> Sequence[str]:
    return tool.parameters.get("required") or ()


def _filled(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """Some value that fits a JSON schema, for a call that must be made in any case."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = str(schema.get("type"))
    if kind == "object" and depth < 8:
        properties = schema.get("properties") or {}
        return {name: _filled(properties.get(name) or {}, depth + 1) for name in schema.get("required") or ()}
    return {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}.get(kind, "demo")


def _deltas(line: Line, calls: Sequence[ToolCall]) -> Iterator[Event]:
    yield from map(ReasoningDelta, _WORDS.findall(line.reasoning))
    yield from map(TextDelta, _WORDS.findall(line.text))
    for index, call in enumerate(calls):
        yield ToolCallDelta(index, call.id, call.name)
        for piece in _WORDS.findall(call.arguments):
            yield ToolCallDelta(index, arguments=piece)


def _reply(request: Request, line: Line, calls: tuple[ToolCall, ...]) -> Reply:
    content: list[Part] = []
    if line.reasoning:
        content.append(Reasoning(line.reasoning))
    if line.text:
        content.append(Text(line.text))
    thought = _tokens(line.reasoning)
    said = thought + _tokens(line.text) + sum(_tokens(call.name) + _tokens(call.arguments) for call in calls)
    heard = _prompt_tokens(request)
    usage = Usage(heard, said, heard + said, reasoning_tokens=thought or None)
    return Reply(tuple(content), calls, line.finish_reason or ("tool_calls" if calls else "stop"), usage)


def _prompt_tokens(request: Request) -> int:
    """An estimate of the prompt's tokens: four characters each, and a few per message."""
    total = _tokens(request.system) + sum(_tokens(tool.description) + 20 for tool in request.tools)
    for prepared in request.messages:
        message = prepared.message
        total += 4 + _tokens(message.text)
        total += sum(_tokens(call.arguments) for call in message.tool_calls)
        total += sum(_tokens(given.text) for given in message.tool_returns)
    return total


def _tokens(text: str) -> int:
    return (len(text) + 3) // 4


def _json(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments)).decode()
