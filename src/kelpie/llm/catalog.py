"""What is known about models by their names, because providers' listings do not tell it.

Facts only: sizes as their makers publish them. What a server declares about its own models goes before this table.
"""

import re
from collections.abc import Mapping
from typing import Any

CONTEXT_WINDOW_UNKNOWN = 32_000
MAX_TOKENS_DEFAULT = 16_384

EMBEDDING_DIMENSIONS = {
    "text-embedding-3-large": 3072,
    "text-embedding-3-small": 1536,
    "text-embedding-ada-002": 1536,
}

# By the beginning of the name; the longest beginning that fits counts.
_CONTEXT_WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-0125": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 272_000,  # for the input; the output has its own room
    "gpt-5-chat": 128_000,
    "gpt-oss": 131_072,
    "gpt-": 128_000,
    "chatgpt-4o": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}
_MAX_TOKENS = {
    "gpt-3.5-turbo": 4_096,
    "gpt-4": 8_192,
    "gpt-4-0125": 4_096,
    "gpt-4-1106": 4_096,
    "gpt-4-turbo": 4_096,
    "gpt-4-vision": 4_096,
    "gpt-4o": MAX_TOKENS_DEFAULT,
    "gpt-4o-2024-05-13": 4_096,
    "gpt-4.": MAX_TOKENS_DEFAULT,
    "gpt-5": MAX_TOKENS_DEFAULT,
    "chatgpt-4o": MAX_TOKENS_DEFAULT,
    "o1": MAX_TOKENS_DEFAULT,
    "o3": MAX_TOKENS_DEFAULT,
    "o4": MAX_TOKENS_DEFAULT,
}

_DECLARED = ("max_model_len", "context_length", "context_window", "max_context_length")

_OTHER_KINDS = re.compile(
    r"embed|tts|whisper|dall-e|image|realtime|audio|transcribe|moderation|rerank|sora|"
    r"^(babbage|davinci|curie|ada)\b|^gpt-3\.5-turbo-instruct"
)
# OpenAI offers these only through another protocol.
_OTHER_PROTOCOLS = re.compile(r"^(gpt-|o\d|codex|computer-use).*?(codex|-pro\b|deep-research|computer-use)")


def chats(name: str) -> bool:
    """Whether a listed model can hold a chat, as far as its name tells."""
    lowered = name.lower()
    return not (_OTHER_KINDS.search(lowered) or _OTHER_PROTOCOLS.match(lowered))


def context_window(name: str, declared: Mapping[str, Any]) -> int:
    """Tokens the model can take in: what the server declares, else what is known, else a careful guess."""
    for field in _DECLARED:
        value = declared.get(field)
        if isinstance(value, int) and value > 0:
            return value
    known = _longest(_CONTEXT_WINDOWS, name)
    return CONTEXT_WINDOW_UNKNOWN if known is None else known


def max_output_tokens(name: str) -> int | None:
    """The longest reply to ask for by default: 16,384 tokens or, where that is less, what the model can give."""
    return _longest(_MAX_TOKENS, name)


def _longest(table: Mapping[str, int], name: str) -> int | None:
    own = name.lower().rpartition("/")[2]
    beginnings = [beginning for beginning in table if own.startswith(beginning)]
    return table[max(beginnings, key=len)] if beginnings else None
