"""OpenAI's embeddings protocol: texts out, one vector each back. Most compatible servers support it too.

A text that is longer than the model accepts gets the vector of its beginning: the limit depends on the model and on the
alphabet, so it is found by trying. Otherwise one such text would make all others fail.
"""

import binascii
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy, retried
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

TEXTS_MAX = 96  # in one request
TEXT_CHARS_MAX = 16_000  # of one text: about half of what OpenAI's models take of English
SHORT_CHARS = 250  # a text of so many is refused for something else than its length
SHORTENED = 4  # times, at each try
EMBED_S = 60.0

_REFUSED = (ModelFault.bad_request, ModelFault.context_overflow)


async def embed(
    world: World, channel: Channel, limits: RetryLimits, model: str, dimensions: int, texts: Sequence[str]
) -> list[bytes]:
    """One vector per text, as little-endian 32-bit floats; `dimensions` is 0 when they are not known yet.

    Raises ModelError.
    """

    async def ask(asked: Sequence[str]) -> list[bytes]:
        async def attempt(patience: RetryPolicy) -> AsyncGenerator[bytes, None]:
            for vector in await _ask(channel, patience, model, dimensions, asked):
                yield vector

        async with aclosing(retried(attempt, limits.for_embedding(EMBED_S), world.random)) as vectors:
            return [vector async for vector in vectors]

    found: list[bytes] = []
    for start in range(0, len(texts), TEXTS_MAX):
        found += await _fitted(ask, [text[:TEXT_CHARS_MAX] or " " for text in texts[start : start + TEXTS_MAX]])
    return found


async def _fitted(ask: Callable[[Sequence[str]], Awaitable[list[bytes]]], texts: Sequence[str]) -> list[bytes]:
    """The vectors of texts, or of as much of each as the model accepts."""
    try:
        return await ask(texts)
    except ModelError as error:
        if error.kind not in _REFUSED or max(map(len, texts)) <= SHORT_CHARS:
            raise
    if len(texts) > 1:
        return [vector for text in texts for vector in await _fitted(ask, (text,))]
    return await _fitted(ask, (texts[0][: len(texts[0]) // SHORTENED],))


async def _ask(
    channel: Channel, patience: RetryPolicy, model: str, dimensions: int, texts: Sequence[str]
) -> list[bytes]:
    body = orjson.dumps({"model": model, "input": list(texts), "encoding_format": "base64"})
    async with channel.open("embeddings", patience, body=body, model=model) as (response, _):
        data = await channel.read_json(response)
    if data.get("error"):
        raise provider_errors.complained(channel.endpoint, data, model=model)
    entries = data.get("data")
    if not isinstance(entries, list) or len(entries) != len(texts):
        raise provider_errors.unreadable(channel.endpoint, f"it does not contain {len(texts)} vectors", "")
    ordered = sorted(entries, key=lambda entry: entry.get("index", 0) if isinstance(entry, dict) else 0)
    return [_vector(channel, entry, dimensions) for entry in ordered]


def _vector(channel: Channel, entry: Any, dimensions: int) -> bytes:
    """The vector from base64 of floats, or from a list of numbers of a server without base64."""
    given: Any = entry.get("embedding") if isinstance(entry, dict) else None
    try:
        values = binascii.a2b_base64(given) if isinstance(given, str) else struct.pack(f"<{len(given)}f", *given)
    except (binascii.Error, struct.error, TypeError):
        raise _unreadable(channel, "a vector in it does not consist of numbers") from None
    if not values or len(values) != 4 * (dimensions or len(values) // 4):
        raise _unreadable(
            channel, f"a vector in it has {len(values) // 4} numbers, but the model has {dimensions} dimensions"
        )
    return values


def _unreadable(channel: Channel, why: str) -> ModelError:
    return provider_errors.unreadable(channel.endpoint, why, "")
