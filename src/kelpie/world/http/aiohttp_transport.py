"""An httpx transport on aiohttp's connections.

The wire code uses httpx, whose transports the simulation can replace; on real sockets httpx's own costs several times
the CPU of this one (docs/decisions/0008). It follows no redirect, keeps no cookie and adds no header of its own accord.
"""

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache

import aiohttp
import aiohttp.abc
import httpx
from yarl import URL

from kelpie.core.public_addresses import is_address, is_public
from kelpie.world.own_addresses import is_own

KEEP_ALIVE_S = 30.0
CONNECT_S_DEFAULT = 15.0
HEADER_BYTES_MAX = 64 * 1024
NOT_PUBLIC = "{} is not a public address"
# Headers that aiohttp would add by itself.
_NOT_ADDED = ("accept", "accept-encoding", "content-type", "user-agent")


class NetworkTransport(httpx.AsyncBaseTransport):
    """Keep-alive connections over TCP and TLS, limited in number; with `public`, to the internet only."""

    def __init__(self, connections_max: int, *, public: bool = False) -> None:
        self._connections_max = connections_max
        self._public = public
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if self._public and _is_refused(host):
            raise httpx.ConnectError(NOT_PUBLIC.format(host), request=request)
        body = await request.aread()
        wait: dict[str, float | None] = request.extensions.get("timeout") or {}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=wait.get("connect") or CONNECT_S_DEFAULT, sock_read=wait.get("read")
        )
        with _as_httpx(request):
            response = await self._open().request(
                request.method,
                _address(str(request.url)),
                headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in _headers(request)],
                data=body or None,
                allow_redirects=False,
                timeout=timeout,
            )
        return httpx.Response(response.status, headers=list(response.raw_headers), stream=_Body(response, request))

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:  # it belongs to the loop that makes the first request
            connector = aiohttp.TCPConnector(
                limit=self._connections_max,
                keepalive_timeout=KEEP_ALIVE_S,
                resolver=_PublicResolver() if self._public else None,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # httpx does that
                skip_auto_headers=_NOT_ADDED,
                max_line_size=HEADER_BYTES_MAX,
                max_field_size=HEADER_BYTES_MAX,
            )
        return self._session


@lru_cache(maxsize=256)
def _address(url: str) -> URL:
    return URL(url, encoded=True)


class _PublicResolver(aiohttp.ThreadedResolver):
    """Resolves names to public addresses only. The checked address is the one that is connected to."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        found = await super().resolve(host, port, family)
        if not all(_is_outside(each["host"]) for each in found):
            raise OSError(errno.EACCES, NOT_PUBLIC.format(host))
        return found


def _is_refused(host: str) -> bool:
    """True for an address that is not public. Names are looked at when they are resolved, but a number such as
    2130706433 is no name: the system takes it for an address, and some versions of aiohttp do not resolve it."""
    if is_address(host):
        return not _is_outside(host)
    return host.replace(".", "").isdigit()


def _is_outside(address: str) -> bool:
    return is_public(address) and not is_own(address)


class _Body(httpx.AsyncByteStream):
    """The body of a response as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx(self._request):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()  # an unread rest would block the next answer


def _headers(request: httpx.Request) -> Iterator[tuple[bytes, bytes]]:
    """The headers without those that aiohttp derives from the body itself."""
    return (pair for pair in request.headers.raw if pair[0].lower() not in (b"content-length", b"transfer-encoding"))


@contextmanager
def _as_httpx(request: httpx.Request) -> Generator[None]:
    """Translates aiohttp's exceptions to httpx's."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx.ConnectTimeout("the connection was not accepted in time", request=request) from error
    except aiohttp.ServerTimeoutError as error:
        raise httpx.ReadTimeout("nothing was received in time", request=request) from error
    except aiohttp.ClientConnectorError as error:
        raise httpx.ConnectError(_reason(error), request=request) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise httpx.UnsupportedProtocol(str(error), request=request) from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise httpx.RemoteProtocolError(str(error), request=request) from error
    except (aiohttp.ClientOSError, OSError) as error:
        raise httpx.ReadError(_os_reason(error), request=request) from error
    except aiohttp.ClientError as error:
        raise httpx.NetworkError(str(error), request=request) from error


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """Why no connection was made, in plain words: aiohttp's own text shows its internals."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if error.os_error.errno == errno.EACCES:  # refused by `_PublicResolver`
            return str(error.os_error.strerror)
        return f"the host name {error.host} could not be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host} is not valid: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"{error.host} did not agree on an encrypted connection: {_os_reason(error.os_error)}"
    return _os_reason(error.os_error)


def _os_reason(error: OSError) -> str:
    """The system's reason, such as "connection refused"."""
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).replace("_", " ").lower()
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
