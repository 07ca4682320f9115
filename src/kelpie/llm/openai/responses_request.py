"""Encoder of requests in OpenAI's responses format.

Nothing is stored at the provider (`store` is false), so the thoughts of earlier steps travel with the history in their
encrypted form. Each row is encoded once and its bytes are cached with it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from kelpie.core.conversations.messages import HiddenReasoning, Image, Message, Part, Reasoning, Role, Text
from kelpie.llm.catalog.openai_traits import is_o_series, reasons
from kelpie.llm.openai import strict_schemas
from kelpie.llm.openai.chat_request import image_url, thinking, wants_strict
from kelpie.llm.provider.interface import PreparedHistory, PreparedMessage, Request, ToolSchema
from kelpie.llm.wire.image_visibility import LOST
from kelpie.llm.wire.json_bytes import array, dumps, joined_history, kept, plain

WIRE = "openai_responses"

OPTIONS = ("top_p", "service_tier", "prompt_cache_key", "truncation")


def encode_request(request: Request, *, summary: bool = True) -> bytes:
    """The body of the call; `summary` asks for a summary of the thoughts, which not every account may have."""
    items: list[bytes | bytearray] = []
    if request.system:
        items.append(dumps({"type": "message", "role": "developer", "content": request.system}))
    items += joined_history(request.messages, WIRE, encode_row, keep=True)  # `forget_thoughts` changes single rows
    body: dict[str, Any] = {
        "model": request.model,
        "input": array(items),
        "store": False,
        **_sampling(request, summary),
        **_text(request),
        **_tools(request),
    }
    if request.user:
        body.setdefault("prompt_cache_key", request.user[:64])
    if request.deltas:
        body["stream"] = True
    return orjson.dumps(body, default=plain)


def encode_row(row: PreparedMessage, *, thoughts: bool = True) -> bytes:
    """The items of a row, separated by commas; empty when it has none. `thoughts` false drops them for good."""
    encoded = row.wire.get(WIRE)
    if encoded is None or not thoughts:
        encoded = kept(_items(row.message, thoughts))
        row.wire[WIRE] = encoded
    return encoded


def forget_thoughts(request: Request) -> bool:
    """Removes the thoughts from every row for good, because the provider cannot read them. False: there were none."""
    rows = [row for row in request.messages if any(_thought(part) for part in row.message.content)]
    for row in rows:
        encode_row(row, thoughts=False)
    if isinstance(request.messages, PreparedHistory):
        request.messages.encoded.pop(WIRE, None)
    return bool(rows)


def _sampling(request: Request, summary: bool) -> dict[str, Any]:
    chosen = {name: request.options[name] for name in OPTIONS if request.options.get(name) is not None}
    if request.max_tokens is not None:
        chosen["max_output_tokens"] = request.max_tokens
    if not reasons(request.model):
        return chosen if request.temperature is None else {**chosen, "temperature": request.temperature}
    reasoning = {"summary": "auto"} if summary else {}
    if effort := thinking(request.options).get("reasoning_effort"):
        reasoning["effort"] = effort
    return {**chosen, "reasoning": reasoning, "include": ["reasoning.encrypted_content"]}


def _text(request: Request) -> dict[str, Any]:
    text: dict[str, Any] = {}
    wanted = request.options.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") in ("json_object", "json_schema"):
        schema = wanted.get("json_schema")
        text["format"] = {"type": wanted["type"], **(schema if isinstance(schema, Mapping) else {})}
    if reasons(request.model) and request.options.get("verbosity"):
        text["verbosity"] = request.options["verbosity"]
    return {"text": text} if text else {}


def _tools(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    chosen: dict[str, Any] = {
        "tools": array([_tool(tool, strict=wants_strict(request)) for tool in request.tools]),
        "tool_choice": request.tool_choice
        if request.tool_choice in ("auto", "required", "none")
        else {"type": "function", "name": request.tool_choice},
    }
    if not is_o_series(request.model):
        chosen["parallel_tool_calls"] = request.parallel_tool_calls
    return chosen


def _tool(tool: ToolSchema, *, strict: bool) -> bytes:
    """A tool. `strict` must be switched off explicitly: it is the default here, and most schemas are not made for
    it."""
    return dumps({"type": "function", "strict": False, **strict_schemas.function(tool, strict=strict)})


def _items(message: Message, thoughts: bool) -> Iterator[Mapping[str, Any]]:
    if message.tool_returns:
        for given in message.tool_returns:
            output: object = given.text
            if given.images:
                output = [{"type": "input_text", "text": given.text}, *(_image(one.source) for one in given.images)]
            yield {"type": "function_call_output", "call_id": given.call_id, "output": output}
    elif message.tool_calls or message.role is Role.assistant:
        # A thought that nothing follows is refused.
        thoughts = thoughts and bool(message.tool_calls or message.text)
        for part in message.content:
            if isinstance(part, Text) and part.text:
                yield {"type": "message", "role": "assistant", "content": part.text}
            elif thoughts and (thought := _thought(part)):
                yield thought
        for call in message.tool_calls:
            yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    elif message.role is Role.system:
        yield {"type": "message", "role": "system", "content": message.text}
    elif message.role in (Role.user, Role.summary):
        yield {"type": "message", "role": "user", "content": _content(message)}


def _thought(part: Part) -> Mapping[str, Any] | None:
    """A thought without its id, by which the provider would look for it in its own storage."""
    match part:
        case Reasoning(text=text, native=True, signature=str(secret)):
            return {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}],
                "encrypted_content": secret,
            }
        case HiddenReasoning(data=str(secret)):
            return {"type": "reasoning", "summary": [], "encrypted_content": secret}
        case _:
            return None


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Image) for part in message.content):
        return message.text
    found: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, Text):
            found.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Image):
            found.append(_image(part.source))
    return found


def _image(source: Mapping[str, Any]) -> dict[str, Any]:
    url = image_url(source)
    if url is None:
        return {"type": "input_text", "text": LOST}
    return {"type": "input_image", "image_url": url, "detail": source.get("detail") or "auto"}
