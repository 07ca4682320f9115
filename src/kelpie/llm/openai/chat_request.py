"""Encoder of requests in OpenAI's chat completions format.

Each message is encoded once and its bytes are cached with it, so that a call with a long history costs little more than
a call with a short one. The content of a row decides its form, not its role alone: a row of several tool returns
becomes several messages, and an empty one becomes none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from kelpie.core.conversations.messages import Image, Message, Role, Text
from kelpie.llm.catalog.openai_traits import is_o_series, reasons
from kelpie.llm.openai import strict_schemas
from kelpie.llm.provider.interface import PreparedHistory, PreparedMessage, Request, ToolSchema
from kelpie.llm.wire.image_visibility import HANDED, LOST
from kelpie.llm.wire.json_bytes import array, dumps, joined_history, kept, plain

WIRE = "openai_chat"

OPTIONS = (
    "response_format",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "service_tier",
    "prompt_cache_key",
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def encode_request(request: Request, named: str | None = None) -> bytes:
    """The body of the call; `named` is the provider's name of the model, where that does not show its kind."""
    messages: list[bytes | bytearray] = []
    if request.system:
        messages.append(dumps({"role": "system", "content": request.system}))
    if isinstance(request.messages, PreparedHistory):
        messages += joined_history(request.messages, WIRE, encode_message, keep=False)
    else:
        messages += _history(request.messages)
    body: dict[str, Any] = {
        "model": named or request.model,
        "messages": array(messages),
        **_sampling(request),
        **_tools(request),
    }
    if request.user:
        body["user"] = request.user
    if request.deltas:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body, default=plain)


def _history(rows: Sequence[PreparedMessage]) -> Iterator[bytes]:
    """The rows; images of tool results follow the results, which accept text alone and must not be separated."""
    handed: list[Image] = []
    for row in rows:
        if handed and not row.message.tool_returns:
            yield dumps(_handed(handed))
            handed = []
        if encoded := row.wire.get(WIRE) or encode_message(row):
            yield encoded
        if row.pictures and row.message.tool_returns:
            handed += row.message.images
    if handed:
        yield dumps(_handed(handed))


def _handed(images: Iterable[Image]) -> Mapping[str, Any]:
    """A message that shows the images of tool results."""
    return {"role": "user", "content": [{"type": "text", "text": HANDED}, *(_image(one.source) for one in images)]}


def encode_message(prepared: PreparedMessage) -> bytes:
    """The JSON of the messages a row becomes, separated by commas; empty when it becomes none."""
    encoded = prepared.wire.get(WIRE)
    if encoded is None:
        encoded = kept(_messages(prepared.message))
        prepared.wire[WIRE] = encoded
    return encoded


def _sampling(request: Request) -> dict[str, Any]:
    thinks = reasons(request.model)
    chosen = {name: request.options[name] for name in OPTIONS if request.options.get(name) is not None}
    if thinks:
        chosen |= thinking(request.options)
    if not thinks and request.temperature is not None:
        chosen["temperature"] = request.temperature
    if request.max_tokens is not None:
        chosen["max_completion_tokens" if thinks else "max_tokens"] = request.max_tokens
    return chosen


def thinking(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of reasoning models only; agents store the effort inside `reasoning`."""
    nested = options.get("reasoning")
    effort = options.get("reasoning_effort") or (
        nested.get("reasoning_effort") if isinstance(nested, Mapping) else None
    )
    given = {"reasoning_effort": effort, "verbosity": options.get("verbosity")}
    return {name: value for name, value in given.items() if value}


def _tools(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    chosen: dict[str, Any] = {
        "tools": array([_tool(tool, strict=wants_strict(request)) for tool in request.tools]),
        "tool_choice": request.tool_choice
        if request.tool_choice in ("auto", "required", "none")
        else {"type": "function", "function": {"name": request.tool_choice}},
    }
    if not is_o_series(request.model):
        chosen["parallel_tool_calls"] = request.parallel_tool_calls
    return chosen


def wants_strict(request: Request) -> bool:
    """Checks whether the agent's settings ask for strict tools."""
    return request.options.get("strict") is True


def _tool(tool: ToolSchema, *, strict: bool) -> bytes:
    return dumps({"type": "function", "function": strict_schemas.function(tool, strict=strict)})


def _messages(message: Message) -> Iterator[Mapping[str, Any]]:
    if message.tool_returns:
        for given in message.tool_returns:
            yield {"role": "tool", "tool_call_id": given.call_id, "content": given.text}
    elif message.tool_calls:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        yield {"role": "assistant", "content": message.text or None, "tool_calls": calls}
    elif message.role in (Role.user, Role.summary):
        said: dict[str, Any] = {"role": "user", "content": _content(message)}
        if message.name and _NAME.fullmatch(message.name):
            said["name"] = message.name
        yield said
    elif message.role is Role.system:
        yield {"role": "system", "content": message.text}
    elif message.role is Role.assistant and message.text:
        yield {"role": "assistant", "content": message.text}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Image) for part in message.content):
        return message.text
    return list(_parts(message.content))


def _parts(content: Iterable[object]) -> Iterator[dict[str, Any]]:
    for part in content:
        if isinstance(part, Text):
            yield {"type": "text", "text": part.text}
        elif isinstance(part, Image):
            yield _image(part.source)


def image_url(source: Mapping[str, Any]) -> str | None:
    """The address of an image, or the image itself as a URL; None when neither is known any more."""
    if not source.get("url") and source.get("data"):
        return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    return source.get("url") or None


def _image(source: Mapping[str, Any]) -> dict[str, Any]:
    url = image_url(source)
    if url is None:
        # An error here would repeat with every turn to come, since the row stays in the history.
        return {"type": "text", "text": LOST}
    image: dict[str, Any] = {"url": url}
    if source.get("detail"):
        image["detail"] = source["detail"]
    return {"type": "image_url", "image_url": image}
