"""Results of remote tools as a model reads them: text, images, and a line for everything else."""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie.core.conversations.messages import Image, Part, Text
from kelpie.mcp.client.answers import CallResult
from kelpie.tools.calls.interface import Outcome

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGES_MAX = 10
IMAGE_CHARS_MAX = 7 * 1024 * 1024  # of base64


def outcome_of(result: CallResult) -> Outcome:
    parts: list[Part] = []
    for content in result.content:
        parts.append(_part(content, sum(isinstance(part, Image) for part in parts)))
    if not parts and result.structured is not None:
        parts.append(Text(orjson.dumps(result.structured).decode()))
    text = "\n".join(part.text if isinstance(part, Text) else "[image]" for part in parts)
    whole = tuple(parts) if any(isinstance(part, Image) for part in parts) else ()
    return Outcome(text, ok=not result.is_error, content=whole, value=result.structured)


def _part(content: Mapping[str, Any], images: int) -> Text | Image:
    match content:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            if kind in IMAGE_TYPES and images < IMAGES_MAX and len(data) <= IMAGE_CHARS_MAX:
                return Image({"type": "base64", "media_type": kind, "data": data})
            return Text(f"[image of type {kind[:40]}, {len(data) * 3 // 4} bytes, which cannot be shown]")
        case {"type": "audio", "data": str(data)}:
            return Text(f"[audio of type {str(content.get('mimeType'))[:40]}, {len(data) * 3 // 4} bytes]")
        case {"type": "resource", "resource": {"text": str(text)}}:
            return Text(text)
        case {"type": "resource", "resource": {"blob": str(data), "uri": str(uri)}}:
            return Text(f"[binary resource {uri[:500]}, {len(data) * 3 // 4} bytes]")
        case {"type": "resource_link", "uri": str(uri)}:
            said = content.get("description") or content.get("title") or content.get("name") or ""
            return Text(f"[resource {uri[:500]}: {str(said)[:500]}]")
        case _:
            return Text(f"[content of the unknown type {str(content.get('type'))[:40]}]")
