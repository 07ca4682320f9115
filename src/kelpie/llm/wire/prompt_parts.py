"""Parts of a prompt, read back from the body of a request in any of the wire formats: for people who want to see what
a model was shown. Nothing here is sent anywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

PartKind = Literal["system", "tool", "message"]

_SYSTEM_ROLES = ("system", "developer")
_CONTENT = ("messages", "input", "tools", "system", "instructions")


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A piece of a prompt: instructions, a tool that the model may call, or a message of the history."""

    kind: PartKind
    role: str  # "system", "user", "assistant", "tool"
    name: str  # of the tool, else empty
    text: str


@dataclass(frozen=True, slots=True)
class WirePrompt:
    """All parts in the order in which the model reads them, and the other fields of the request."""

    parts: tuple[PromptPart, ...]
    options: Mapping[str, Any]


def read_prompt(body: bytes) -> WirePrompt | None:
    """The prompt in a request to a provider; None when the body is no JSON object."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    found = (*_system(document), *_tools(document), *_history(document))
    return WirePrompt(found, {name: value for name, value in document.items() if name not in _CONTENT})


def _system(document: Mapping[str, Any]) -> Iterator[PromptPart]:
    for field in ("system", "instructions"):
        if text := _text(document.get(field)):
            yield PromptPart("system", "system", "", text)
    for message in _messages(document):
        if message.get("role") in _SYSTEM_ROLES:
            yield PromptPart("system", "system", "", _text(message.get("content")))


def _tools(document: Mapping[str, Any]) -> Iterator[PromptPart]:
    for tool in document.get("tools") or ():
        if isinstance(tool, dict):
            inner: Any = tool.get("function") or tool
            name = str(inner.get("name") or inner.get("type") or "tool") if isinstance(inner, dict) else "tool"
            yield PromptPart("tool", "system", name, _dumped(inner))


def _history(document: Mapping[str, Any]) -> Iterator[PromptPart]:
    if isinstance(said := document.get("input"), str):
        yield PromptPart("message", "user", "", said)
    for message in _messages(document):
        role = str(message.get("role") or "")
        kind = str(message.get("type") or "")
        if role in _SYSTEM_ROLES:
            continue
        if kind == "function_call":
            yield PromptPart("message", "assistant", "", _call(message.get("name"), message.get("arguments")))
        elif kind == "function_call_output":
            yield PromptPart("message", "tool", "", _text(message.get("output")))
        else:
            yield from _said(message, role)


def _said(message: Mapping[str, Any], role: str) -> Iterator[PromptPart]:
    content = message.get("content") or message.get("summary")
    results = [part for part in _listed(content) if isinstance(part, dict) and part.get("type") == "tool_result"]
    for part in results:  # Anthropic's results stand in a message of the user
        yield PromptPart("message", "tool", "", _text(part.get("content")))
    rest = [part for part in _listed(content) if part not in results] if results else content
    calls = [
        _call(inner.get("name"), inner.get("arguments"))
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict) and isinstance(inner := call.get("function") or call, dict)
    ]
    images = ["[image]"] * len(_listed(message.get("images")))  # where Ollama has them
    text = "\n".join(filter(None, (_text(rest), *images, *calls)))
    if text or not results:
        yield PromptPart(
            "message", "tool" if role == "tool" else role or "assistant", str(message.get("name") or ""), text
        )


def _messages(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("messages", "input"):
        yield from (each for each in _listed(document.get(field)) if isinstance(each, dict))


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_part_text, _listed(content)))) if isinstance(content, list) else _dumped(content)


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return str(part)
    kind = str(part.get("type") or "")
    if "image" in kind:
        return "[image]"
    if kind == "tool_use":
        return _call(part.get("name"), part.get("input"))
    for field in ("text", "thinking", "content", "data"):
        if isinstance(value := part.get(field), str):
            return value
    return _dumped(part)


def _call(name: object, arguments: object) -> str:
    return f"{name}({arguments if isinstance(arguments, str) else _dumped(arguments)})"


def _dumped(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
