"""Images that come with a send: whether the model can see them, and their data where it can only have that.

It is settled before the send is acknowledged. An address that a provider fetches itself is passed on; for a model that
takes none by address the image is fetched here, from the internet only, within bounds of time, size and number.
"""

import asyncio
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import replace

import httpx

from kelpie.core.access.hosts import is_loopback
from kelpie.core.conversations.messages import Image, NewMessage, Part
from kelpie.core.errors import InvalidInput
from kelpie.core.models.image_limits import IMAGE_BYTES_MAX, MEDIA_TYPES
from kelpie.core.public_addresses import is_address, is_public
from kelpie.llm.routing.models import Models
from kelpie.world.http.port import Http

FETCH_S_MAX = 20.0
REDIRECTS_MAX = 3
FIELD = "content"
_TAKE_NO_ADDRESSES = frozenset({"ollama", "lmstudio", "llamacpp", "localai"})  # providers that fetch nothing


def has_images(messages: Iterable[NewMessage]) -> bool:
    return any(isinstance(part, Image) for message in messages for part in message.content)


async def settled(http: Http, models: Models, handle: str, messages: Sequence[NewMessage]) -> tuple[NewMessage, ...]:
    """The messages as this model can be shown them. Raises InvalidInput."""
    info = models.known(handle)
    if info is not None and not info.vision:
        raise InvalidInput(FIELD, f"{handle} does not accept images; send text, or use a model that accepts images")
    fetches = handle.partition("/")[0] in _TAKE_NO_ADDRESSES
    return tuple([replace(one, content=await _parts(http, one.content, fetches=fetches)) for one in messages])


async def _parts(http: Http, parts: Sequence[Part], *, fetches: bool) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in parts:
        url = part.source.get("url") if isinstance(part, Image) else None
        if isinstance(url, str):
            _check_host(url)
            part = await fetched(http, url) if fetches else part
        found.append(part)
    return tuple(found)


def _check_host(url: str) -> None:
    """Raises InvalidInput for an address that is not on the internet."""
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL as error:
        raise _failed(url, str(error)) from None
    if not host or is_loopback(host) or (is_address(host) and not is_public(host)):
        raise _failed(url, "it is not a public address")


async def fetched(http: Http, url: str) -> Image:
    """The image at this address, by value. Raises InvalidInput."""
    transport = http.transport(public=True)
    client = httpx.AsyncClient(transport=transport, follow_redirects=True, max_redirects=REDIRECTS_MAX)
    try:
        async with asyncio.timeout(FETCH_S_MAX), client, client.stream("GET", url) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not response.is_success:
                raise _failed(url, f"the server answered with status {response.status_code}")
            if kind not in MEDIA_TYPES:
                raise _failed(url, f"its content type is not one of {', '.join(MEDIA_TYPES)}")
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > IMAGE_BYTES_MAX:
                    raise _failed(url, f"it is larger than {IMAGE_BYTES_MAX} bytes")
    except TimeoutError:
        raise _failed(url, f"the download took longer than {FETCH_S_MAX:.0f} s") from None
    except httpx.HTTPError as error:
        raise _failed(url, str(error) or type(error).__name__) from None
    return Image({"type": "base64", "media_type": kind, "data": binascii.b2a_base64(data, newline=False).decode()})


def _failed(url: str, why: str) -> InvalidInput:
    return InvalidInput(FIELD, f"the image at {url[:200]} cannot be downloaded: {why}; send it as base64")
