"""Content of messages in OpenAI's words: text, or a list of text and image parts."""

from collections.abc import Sequence
from typing import Any

from kelpie.core.conversations.messages import Part, Text
from kelpie.core.errors import InvalidInput
from kelpie.server.letta.messages.content_body import content_parts

_TEXT = frozenset({"text", "input_text", "output_text"})
_DATA = "data:"
TEXT_CHARS_MAX = 1_000_000  # of one text: what a history says is hashed with every request


def parts_of(content: object, field: str) -> tuple[Part, ...]:
    """The parts of a message; none for an empty one. Raises InvalidInput."""
    if content is None or content == "" or content == []:
        return ()
    if isinstance(content, str):
        return (Text(_bounded(content, field)),)
    if not isinstance(content, list):
        raise InvalidInput(field, "must be text or a list of parts")
    shapes = [_shape(part, field) for part in content]
    texts = [shape for shape in shapes if shape["type"] == "image" or shape["text"]]
    return content_parts(texts, field) if texts else ()


def text_of(content: object, field: str) -> str:
    """The text of a message that may hold nothing else. Raises InvalidInput."""
    parts = parts_of(content, field)
    if not all(isinstance(part, Text) for part in parts):
        raise InvalidInput(field, "a message of this role may only have text")
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _bounded(text: str, field: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidInput(field, f"has more than {TEXT_CHARS_MAX} characters; send it in several messages")
    return text


def _shape(part: object, field: str) -> dict[str, Any]:
    match part:
        case {"type": str(kind), "text": str(text)} if kind in _TEXT:
            return {"type": "text", "text": _bounded(text, field)}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)} as image}:
            return _image(url, image.get("detail"), field)
        case {"type": "input_image", "image_url": str(url), **rest}:
            return _image(url, rest.get("detail"), field)
        case {"type": str(kind)}:
            raise InvalidInput(field, f"parts of type {kind[:80]!r} cannot be sent; use text and images by URL or data")
        case _:
            raise InvalidInput(field, "a part must be an object with a 'type' and its content")


def _image(url: str, detail: object, field: str) -> dict[str, Any]:
    if not url.startswith(_DATA):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, comma, data = url.removeprefix(_DATA).partition(";base64,")
    if not comma:
        raise InvalidInput(field, "an image in a data URL must be base64: data:image/png;base64,...")
    source: dict[str, Any] = {"type": "base64", "media_type": kind.lower(), "data": data}
    return {"type": "image", "source": source | ({} if detail is None else {"detail": detail})}


def joined(texts: Sequence[str]) -> str | None:
    """Several instructions as one; None when there are none."""
    return "\n\n".join(text for text in texts if text.strip()) or None
