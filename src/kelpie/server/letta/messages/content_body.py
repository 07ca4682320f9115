"""Content of a message or of a tool's result in requests: text, or a list of text and image parts.

Images are checked here for what no provider accepts: an unknown kind, broken base64, too many or too large ones. The
agent package checks if the agent's model can see images.
"""

import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.core.conversations.messages import Image, Part, Text
from kelpie.core.errors import InvalidInput
from kelpie.core.models.image_limits import IMAGE_BYTES_MAX, IMAGES_MAX, MEDIA_TYPES

Content = str | list[dict[str, Any]]
"""Text, or a list of parts `{"type": "text" | "image", ...}`."""

URL_CHARS_MAX = 8_192
_DETAILS = frozenset({"low", "high", "auto"})


def content_parts(content: Content, field: str) -> tuple[Part, ...]:
    """The parts of a message. Raises InvalidInput when it is empty or a part is of another kind."""
    parts = (Text(content),) if isinstance(content, str) else _parts(content, field)
    if not any(isinstance(part, Image) or (isinstance(part, Text) and part.text) for part in parts):
        raise InvalidInput(field, "must not be empty")
    return parts


def return_parts(given: object, field: str) -> tuple[str, tuple[Part, ...]]:
    """A tool's result: its text, and its parts when it has more than text. Raises InvalidInput."""
    if isinstance(given, str):
        return given, ()
    if not isinstance(given, list):
        raise InvalidInput(field, "must be text or a list of text and image parts")
    parts = _parts(given, field)
    return "\n".join(part.text for part in parts if isinstance(part, Text)), parts


def _parts(content: Sequence[object], field: str) -> tuple[Part, ...]:
    parts = tuple(_part(item, field) for item in content)
    if sum(isinstance(part, Image) for part in parts) > IMAGES_MAX:
        raise InvalidInput(field, f"has more than {IMAGES_MAX} images; send them in several messages")
    return parts


def _part(item: object, field: str) -> Part:
    match item:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "source": {"type": "base64", "data": str(data)} as source}:
            return _whole_image(source, data, field)
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return _image_at(url, field)
        case {"type": "image", "source": {"type": "letta"}}:
            raise InvalidInput(field, "images by file id are not supported; use base64")
        case {"type": "text" | "image"}:
            raise InvalidInput(field, "a text part needs 'text', an image part a 'source' of type base64 or url")
        case {"type": kind}:
            raise InvalidInput(field, f"parts of type {kind!r:.80} cannot be sent; use text or image")
        case _:
            raise InvalidInput(field, "a part must be an object with a 'type': text or image")


def _whole_image(source: Mapping[str, Any], data: str, field: str) -> Image:
    kind, detail = source.get("media_type"), source.get("detail")
    if kind not in MEDIA_TYPES:
        raise InvalidInput(field, f"images of type {kind!r:.80} cannot be sent; use {', '.join(MEDIA_TYPES)}")
    if len(data) > IMAGE_BYTES_MAX * 4 // 3 + 4:
        raise InvalidInput(field, f"an image is larger than {IMAGE_BYTES_MAX} bytes; send a smaller one")
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except binascii.Error as error:
        raise InvalidInput(field, f"the data of an image is not base64: {error}") from None
    if not raw:
        raise InvalidInput(field, "the data of an image is empty")
    kept = {"type": "base64", "media_type": kind, "data": data}
    return Image(kept | _detail(detail, field))


def _image_at(url: str, field: str) -> Image:
    if len(url) > URL_CHARS_MAX or not url.lower().startswith(("http://", "https://")):
        raise InvalidInput(field, "the url of an image must begin with http:// or https://; use base64 for its data")
    return Image({"type": "url", "url": url})


def _detail(detail: object, field: str) -> dict[str, str]:
    if detail is None:
        return {}
    if not isinstance(detail, str) or detail not in _DETAILS:
        raise InvalidInput(field, "the detail of an image must be low, high or auto")
    return {"detail": detail}
