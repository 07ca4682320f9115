"""Encoder of requests in Ollama's own chat format, which alone accepts num_ctx, num_gpu, num_thread and keep_alive.

Each message is encoded once and its bytes are cached with it. Ollama silently shortens a prompt that is longer than
`num_ctx`, so `num_ctx` is always large enough for the request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from kelpie.core.conversations.messages import Image, Message, Role
from kelpie.core.models.image_limits import TOKENS_PER_IMAGE
from kelpie.llm.provider.interface import PreparedMessage, Request, ToolSchema
from kelpie.llm.wire.json_bytes import array, dumps, kept

WIRE = "ollama"
WINDOW_MIN = 8_192  # a smaller one would soon have to grow, and each change loads the model anew
CHARS_PER_TOKEN = 3  # on the careful side
_ELSEWHERE = "[An image was here, but Ollama does not accept images by URL.]"
REPLY_TOKENS = 2_048

# Ollama's names of the options in an agent's model settings.
OPTIONS = (
    "num_ctx",
    "num_gpu",
    "num_thread",
    "num_batch",
    "num_keep",
    "main_gpu",
    "use_mmap",
    "seed",
    "stop",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def encode_request(request: Request, num_ctx: int | None) -> bytes:
    """The body of the call. `num_ctx` is the window to request unless the agent sets its own; None requests none."""
    options = {name: request.options[name] for name in OPTIONS if request.options.get(name) is not None}
    if num_ctx is not None:
        options.setdefault("num_ctx", num_ctx)
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    body: dict[str, Any] = {
        "model": request.model,
        "messages": array(_all_messages(request)),
        "stream": request.deltas,
        "options": options,
    }
    if tools := _tools(request):
        body["tools"] = tools
    for name in ("keep_alive", "think"):
        if request.options.get(name) is not None:
            body[name] = request.options[name]
    if (format_ := _format(request.options.get("response_format"))) is not None:
        body["format"] = format_
    return dumps(body)


def window_for(request: Request, window: int | None) -> int:
    """The window that holds this request and its reply: the smallest, doubled until it fits, never over `window`."""
    chars = len(request.system) + sum(_chars(prepared) for prepared in request.messages)
    chars += sum(len(dumps(_tool(tool))) for tool in request.tools)
    needed = chars // CHARS_PER_TOKEN + min(request.max_tokens or REPLY_TOKENS, REPLY_TOKENS)
    size = WINDOW_MIN
    while size < needed:
        size *= 2
    return size if window is None else min(size, window)


def _chars(prepared: PreparedMessage) -> int:
    images = prepared.pictures * TOKENS_PER_IMAGE * CHARS_PER_TOKEN
    return len(encode_message(prepared)) - prepared.picture_chars + images


def encode_message(prepared: PreparedMessage) -> bytes:
    """The JSON of the messages a row becomes, separated by commas; empty when it becomes none."""
    encoded = prepared.wire.get(WIRE)
    if encoded is None:
        encoded = kept(_messages(prepared.message))
        prepared.wire[WIRE] = encoded
    return encoded


def _all_messages(request: Request) -> list[bytes]:
    system = [dumps({"role": "system", "content": request.system})] if request.system else []
    return system + [encoded for prepared in request.messages if (encoded := encode_message(prepared))]


def _messages(message: Message) -> Iterator[Mapping[str, Any]]:
    if message.tool_returns:
        for given in message.tool_returns:
            said = {"role": "tool", "tool_name": given.name, "content": given.text}
            yield said | _images(given.images, said)
    elif message.tool_calls:
        calls = [{"function": {"name": call.name, "arguments": _object(call.arguments)}} for call in message.tool_calls]
        yield {"role": "assistant", "content": message.text, "tool_calls": calls}
    elif message.role in (Role.user, Role.summary):
        yield _user(message)
    elif message.role in (Role.system, Role.assistant) and message.text:
        yield {"role": message.role.value, "content": message.text}


def _user(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "user", "content": message.text}
    return said | _images(message.images, said)


def _images(images: Sequence[Image], said: Mapping[str, Any]) -> dict[str, Any]:
    """The images of a message, and a text for those that only have an address: Ollama fetches none."""
    data = [image.source["data"] for image in images if image.source.get("data")]
    lost = [_ELSEWHERE] * (len(images) - len(data))
    found: dict[str, Any] = {"content": "\n".join([said["content"], *lost])} if lost else {}
    return found | {"images": data} if data else found


def _tools(request: Request) -> list[Mapping[str, Any]]:
    """The tools. Ollama has no tool choice: the tool that must be called is the only one in the list."""
    if request.tool_choice == "none":
        return []
    chosen = [tool for tool in request.tools if tool.name == request.tool_choice]
    return [_tool(tool) for tool in chosen or request.tools]


def _tool(tool: ToolSchema) -> Mapping[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _format(wanted: object) -> object:
    """A schema or the word "json", from the format of OpenAI's clients."""
    if not isinstance(wanted, Mapping):
        return None
    schema = wanted.get("json_schema")
    if wanted.get("type") == "json_schema" and isinstance(schema, Mapping):
        return schema.get("schema", schema)
    return "json" if wanted.get("type") == "json_object" else None


def _object(arguments: str) -> object:
    """The arguments as an object, which Ollama requires; anything else that a model once gave is sent as text, so that
    nothing is lost."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}
