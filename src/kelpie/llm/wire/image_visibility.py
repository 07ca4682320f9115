"""Images of a history that a model is shown.

A model without vision, and a history with more images than a provider accepts, must never keep an agent from answering:
a sentence replaces an image that is not shown. The rows themselves are never changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kelpie.core.conversations.messages import Image, Part, Text, ToolReturn
from kelpie.llm.provider.interface import PreparedMessage

SHOWN_MAX = 50  # in one request, the newest
SHOWN_CHARS_MAX = 20 * 1024 * 1024  # of base64 in one request; the least that a provider takes is 32 MB in all

BLIND = "[There is an image here, but this model cannot see images.]"
FORGOTTEN = "[An older image was here; it is no longer shown.]"
HANDED = "(The images of the tool results above.)"
LOST = "[An image was here, but its data is no longer available.]"


def in_sight(entries: Sequence[PreparedMessage], *, sees: bool) -> Sequence[PreparedMessage]:
    """The entries as the model gets them: with all images, the newest that fit, or none."""
    if not any(entry.pictures for entry in entries):
        return entries
    shown, number, chars = list(entries), 0, 0
    for place in range(len(shown) - 1, -1, -1):
        entry = shown[place]
        if not entry.pictures:
            continue
        number, chars = number + entry.pictures, chars + entry.picture_chars
        if not sees or number > SHOWN_MAX or chars > SHOWN_CHARS_MAX:
            shown[place] = _without(entry, FORGOTTEN if sees else BLIND)
    return shown


def _without(entry: PreparedMessage, words: str) -> PreparedMessage:
    """The entry with a sentence for each image; cached with it, so that it is encoded once too."""
    known = entry.blind
    if known is None or known[0] != words:
        message = entry.message
        returns = tuple(_return_without(given, words) for given in message.tool_returns)
        bare = replace(message, content=_parts_without(message.content, words), tool_returns=returns)
        entry.blind = known = (words, PreparedMessage(bare))
    return known[1]


def _parts_without(parts: Iterable[Part], words: str) -> tuple[Part, ...]:
    return tuple(Text(words) if isinstance(part, Image) else part for part in parts)


def _return_without(given: ToolReturn, words: str) -> ToolReturn:
    if not given.images:
        return given
    return replace(given, text="\n".join([given.text, *[words] * len(given.images)]), content=())
