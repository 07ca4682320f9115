"""Images that come with a send: whether the model can see them, and their data where it can only have that.

It is settled before the send is acknowledged. An address that a provider fetches itself is passed on; for a model that
takes none by address the image is fetched here, from the internet only, within bounds of time, size and number.

Code of a tool may refer to an image only at a host of its egress list, redirects included: an address can carry what
the code knows, and whoever fetches it would be a way to the network.
"""

import asyncio
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import replace

import httpx

from kelpie.core.access.hosts import is_loopback
from kelpie.core.access.passports import Passport
from kelpie.core.conversations.messages import Image, NewMessage, Part
from kelpie.core.errors import Forbidden, InvalidInput
from kelpie.core.models.image_limits import IMAGE_BYTES_MAX, MEDIA_TYPES
from kelpie.core.public_addresses import is_address, is_public
from kelpie.core.tools import egress_rules
from kelpie.llm.routing.models import Models
from kelpie.world.http.port import Http

FETCH_S_MAX = 20.0
REDIRECTS_MAX = 3
FIELD = "content"
_TAKE_NO_ADDRESSES = frozenset({"ollama", "lmstudio", "llamacpp", "localai"})  # providers that fetch nothing


def has_images(messages: Iterable[NewMessage]) -> bool:
    return any(isinstance(part, Image) for message in messages for part in message.content)


def check_egress(messages: Iterable[NewMessage], passport: Passport) -> None:
    """Raises Forbidden when tool code refers to an image at a host that it may not reach itself."""
    for message in messages:
        for part in message.content:
            if isinstance(part, Image) and part.source.get("type") != "base64":
                _check_egress(str(part.source.get("url", "")), passport)


def _check_egress(url: str, passport: Passport) -> None:
    found = egress_rules.destination(url)
    if found is None:
        raise Forbidden(
            f"{FIELD}: tool code may refer to an image only by a plain address such as https://example.com/image.png, "
            "with neither user name nor unusual signs; or send the image as base64."
        )
    host, port = found
    if not egress_rules.allows(egress_rules.entries(passport.egress), host, port):
        raise Forbidden(
            f"{FIELD}: the tool {passport.tool!r} may not refer to an image at {host}:{port}, because its egress list "
            "does not allow this host. Add the host to sandbox.egress of the tool, or send the image as base64."
        )


async def settled(
    http: Http, models: Models, handle: str, messages: Sequence[NewMessage], passport: Passport | None = None
) -> tuple[NewMessage, ...]:
    """The messages as this model can be shown them; the passport is of the tool code that sends them.

    Raises InvalidInput, and Forbidden when a redirect leads to a host that the code may not reach.
    """
    info = models.known(handle)
    if info is not None and not info.vision:
        raise InvalidInput(FIELD, f"{handle} does not accept images; send text, or use a model that accepts images")
    fetches = handle.partition("/")[0] in _TAKE_NO_ADDRESSES
    asked = (http, fetches, passport)
    return tuple([replace(one, content=await _parts(one.content, *asked)) for one in messages])


async def _parts(parts: Sequence[Part], http: Http, fetches: bool, passport: Passport | None) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in parts:
        url = part.source.get("url") if isinstance(part, Image) else None
        if isinstance(url, str):
            _check_host(url)
            part = await fetched(http, url, passport) if fetches else part
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


async def fetched(http: Http, url: str, passport: Passport | None = None) -> Image:
    """The image at this address, by value. Raises InvalidInput, and Forbidden for tool code as `settled` does."""

    async def check(request: httpx.Request) -> None:
        if passport is not None:
            _check_egress(str(request.url), passport)

    transport = http.transport(public=True)
    client = httpx.AsyncClient(transport=transport, follow_redirects=True, max_redirects=REDIRECTS_MAX)
    client.event_hooks = {"request": [check]}  # which sees redirects as well
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
