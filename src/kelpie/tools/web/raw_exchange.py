"""One HTTP exchange with bounds: the body is read as it comes, never decompressed while it arrives, and never whole
beyond its limit.

A decompressor of a client library would turn a few kilobytes into gigabytes in one call, on the event loop. Nothing is
followed and nothing is retried here.
"""

import zlib
from dataclasses import dataclass

import httpx

ENCODINGS = "gzip, deflate"
_WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}  # deflate comes with a zlib head or without


class TooLarge(Exception):
    """A body is larger than its limit."""


class NotDecodable(Exception):
    """A body is not what its content encoding says."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came over the network."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def encoding(self) -> str:
        return self.headers.get("content-encoding", "").strip().lower()


async def read_body(response: httpx.Response, bytes_max: int) -> bytes:
    """The body of a response, as sent. Raises TooLarge and httpx.HTTPError."""
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise TooLarge
    assert isinstance(response.stream, httpx.AsyncByteStream)
    data = bytearray()
    async for chunk in response.stream:
        data += chunk
        if len(data) > bytes_max:
            raise TooLarge
    return bytes(data)


def decoded(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body without its content encoding. Raises TooLarge and NotDecodable."""
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise NotDecodable(f"the content encoding '{encoding[:40]}' was not asked for")
    for window in _WINDOWS[encoding]:
        decompressor = zlib.decompressobj(window)
        try:
            found = decompressor.decompress(body, bytes_max + 1)
        except zlib.error:
            continue
        if len(found) > bytes_max:
            raise TooLarge
        if not decompressor.eof:
            raise NotDecodable("the compressed body is incomplete")
        return found
    raise NotDecodable(f"the body is not compressed with {encoding}")
