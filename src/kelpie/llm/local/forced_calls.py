"""Forced tool calls on llama.cpp.

It knows no choice of one tool by name, and it ignores tools when the chat template of the model has no place for them.
It does enforce a JSON schema on any model: so a call that must be made is requested as a reply in the form of a call,
and the reply is turned into one.
"""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from kelpie.core.conversations.messages import Text, ToolCall
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.errors import DETAIL_CHARS_MAX
from kelpie.llm.provider.interface import Event, Reply, Request, TextDelta, ToolCallDelta
from kelpie.llm.wire.call_ids import made_call_id

WORDS = (
    "Call one of these functions. Reply with a single JSON object that has the name of the function and its "
    "arguments, and nothing else:"
)
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"arguments"\s*:\s*')


def is_forced(request: Request) -> bool:
    """Checks whether the model must call a tool."""
    return bool(request.tools) and request.tool_choice not in ("auto", "none")


def with_one_choice(request: Request) -> Request:
    """The request in words that llama.cpp knows: a tool that must be called is the only one."""
    chosen = [tool for tool in request.tools if tool.name == request.tool_choice]
    return replace(request, tools=chosen or request.tools, tool_choice="required")


def as_schema(request: Request) -> Request:
    """The request for a reply in the form of a call, without tools."""
    shown = [
        orjson.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters}).decode()
        for tool in request.tools
    ]
    forms = [_form(tool.name, tool.parameters) for tool in request.tools]
    schema = {"name": "call", "schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}
    return replace(
        request,
        system="\n".join((request.system, "", WORDS, *shown)).strip(),
        tools=(),
        tool_choice="auto",
        options={**request.options, "response_format": {"type": "json_schema", "json_schema": schema}},
    )


async def stream(
    ask: Callable[[Request], AsyncGenerator[Event, None]], request: Request
) -> AsyncGenerator[Event, None]:
    """Calls the model; its text becomes a tool call, piece by piece. Raises ModelError."""
    pieces = _CallPieces(made_call_id(request, 0))
    async with aclosing(ask(as_schema(request))) as events:
        async for event in events:
            if isinstance(event, Reply):
                made = _reply(event, pieces.call_id)
                if delta := pieces.rest(made.tool_calls[0].arguments):
                    yield delta
                yield made
            elif not isinstance(event, TextDelta):
                yield event
            elif delta := pieces.take(event.text):
                yield delta


class _CallPieces:
    """The pieces of a call as its text arrives: the head with the name, then the arguments. Braces at the end are held
    back, because the last one is no part of the arguments."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self._text = ""
        self._start: int | None = None  # of the arguments in the text
        self._given = 0  # characters of the arguments

    def take(self, text: str) -> ToolCallDelta | None:
        self._text += text
        if self._start is not None:
            return self._more(self._text[self._start :].rstrip("} \n\t\r"))
        head = _HEAD.match(self._text)
        if head is None:
            return None
        self._start = head.end()
        first = self._more(self._text[self._start :].rstrip("} \n\t\r"))
        return ToolCallDelta(0, self.call_id, head[1], first.arguments if first else "")

    def rest(self, arguments: str) -> ToolCallDelta | None:
        """The last piece; None when nothing was streamed."""
        return None if self._start is None else self._more(arguments)

    def _more(self, arguments: str) -> ToolCallDelta | None:
        new, self._given = arguments[self._given :], max(self._given, len(arguments))
        return ToolCallDelta(0, arguments=new) if new else None


def _form(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _reply(told: Reply, call_id: str) -> Reply:
    text = "".join(part.text for part in told.content if isinstance(part, Text)).strip()
    head = _HEAD.match(text)
    arguments = text[head.end() : -1].rstrip() if head else ""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        head = None
    if head is None:
        cut = told.finish_reason == "length"
        why = "its reply reached the limit on output tokens" if cut else "its reply is no call"
        raise ModelError(
            ModelFault.malformed,
            f"The model did not call a tool: {why}.",
            detail=text[:DETAIL_CHARS_MAX] or None,
            hint="Raise max_output_tokens of the agent, or give it a model that calls tools.",
        )
    return replace(told, content=(), tool_calls=(ToolCall(call_id, head[1], arguments),), finish_reason="tool_calls")
