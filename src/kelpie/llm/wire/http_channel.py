"""One provider's HTTP connection: requests out, answers in, every wait and every size bounded.

Any failure becomes a ModelError. It never retries; `retry` does.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import Any

import httpx
import orjson

from kelpie import __version__
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.retry import RetryPolicy, retry_after_s
from kelpie.world.world import World

ANSWER_BYTES_MAX = 32 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024


class PatientStream(httpx.AsyncByteStream):
    """A response body that is abandoned when it pauses too long or grows too large."""

    def __init__(self, inner: httpx.AsyncByteStream, patience: RetryPolicy, pause_s_max: float, whom: str) -> None:
        self.pause_s_max = pause_s_max  # may be changed while reading
        self._inner = inner
        self._patience = patience
        self._whom = whom

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        chunks = aiter(self._inner)
        while True:
            try:
                chunk = await self._patience.wait(
                    anext(chunks), self.pause_s_max, f"{self._whom} stopped sending its reply"
                )
            except StopAsyncIteration:
                return
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise self._too_large()
            yield chunk

    async def whole(self) -> bytes:
        """All of it; as one wait, where a pause may be as long as the whole. Raises ModelError."""
        if self.pause_s_max < self._patience.limits.total_s:
            return b"".join([chunk async for chunk in self])
        return await self._patience.wait(self._joined(), self.pause_s_max, f"{self._whom} stopped sending its reply")

    async def _joined(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self._inner:
            chunks.append(chunk)
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise self._too_large()
        return b"".join(chunks)

    def _too_large(self) -> ModelError:
        return ModelError(ModelFault.malformed, f"{self._whom} sent a reply of more than {ANSWER_BYTES_MAX} bytes.")

    async def aclose(self) -> None:
        await self._inner.aclose()


class Channel:
    """HTTP client of one endpoint. The connection pool is made with the first request."""

    def __init__(self, world: World, endpoint: Endpoint, headers: Mapping[str, str] | None = None) -> None:
        """`headers` are those that this provider needs beside the usual ones; without them a key is a bearer token."""
        self.endpoint = endpoint
        self._world = world
        bearer = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._headers = bearer if headers is None else headers
        self._made: dict[tuple[bool, bool], httpx.Headers] = {}  # those of all requests, by kind
        self._transport: httpx.AsyncBaseTransport | None = None
        self._requests = 0  # that are under way
        self._closing = False

    @asynccontextmanager
    async def open(
        self,
        path: str,
        patience: RetryPolicy,
        *,
        body: bytes | None = None,
        model: str | None = None,
        streams: bool = False,
        method: str | None = None,
    ) -> AsyncGenerator[tuple[httpx.Response, PatientStream], None]:
        """A successful answer whose body is not read yet: POST with a body, GET without, or the given method.

        Raises ModelError.
        """
        url = self.endpoint.url(path)
        limits = patience.limits
        self._requests += 1
        try:
            request = self._request(method or ("GET" if body is None else "POST"), url, body, streams, limits.connect_s)
            response = await patience.wait(
                self._connection().handle_async_request(request),
                limits.first_byte_s if streams else limits.total_s,
                f"{self.endpoint.provider} did not begin to answer",
            )
            try:
                assert isinstance(response.stream, httpx.AsyncByteStream)
                pause_s_max = limits.idle_s if streams else limits.total_s
                patient = PatientStream(response.stream, patience, pause_s_max, self.endpoint.provider)
                response.stream = patient
                if response.status_code != 200:
                    raise await self._refusal(response, model)
                yield response, patient
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise provider_errors.unreachable(self.endpoint, url, error) from error
        finally:
            self._requests -= 1
            if self._closing:
                await self.close()

    async def read(self, response: httpx.Response) -> bytes:
        """The whole body. Raises ModelError."""
        stream = response.stream
        if not isinstance(stream, PatientStream) or "content-encoding" in response.headers:
            return await response.aread()
        return await stream.whole()  # a third of what httpx needs for it

    async def read_json(self, response: httpx.Response) -> dict[str, Any]:
        """The JSON object in the body. Raises ModelError (malformed) for anything else."""
        return self.object_in(response, await self.read(response))

    def object_in(self, response: httpx.Response, body: bytes) -> dict[str, Any]:
        """The JSON object in a body that was read. Raises ModelError (malformed) for anything else."""
        kind = response.headers.get("content-type", "application/json")
        if "json" not in kind:
            raise provider_errors.unreadable(self.endpoint, f"its content type is {kind}, not JSON", body)
        return self.parse(body)

    def parse(self, text: bytes | str) -> dict[str, Any]:
        """The JSON object in the text. Raises ModelError (malformed)."""
        try:
            data = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise provider_errors.unreadable(self.endpoint, f"it is not JSON ({error})", text) from None
        if isinstance(data, list):
            return {"data": data}  # some servers list their models without the envelope
        if not isinstance(data, dict):
            raise provider_errors.unreadable(self.endpoint, "it is not a JSON object", text)
        return data

    async def close(self) -> None:
        """Closes the connections, those of requests that are under way when they end."""
        self._closing = True
        if self._transport is not None and not self._requests:
            transport, self._transport = self._transport, None
            await transport.aclose()

    def _connection(self) -> httpx.AsyncBaseTransport:
        """The transport itself: redirects, cookies and auth flows, which a client adds, are not wanted here."""
        if self._transport is None:
            self._transport = self._world.http.transport(public=self.endpoint.public)
        return self._transport

    def _request(self, method: str, url: str, body: bytes | None, streams: bool, connect_s: float) -> httpx.Request:
        parsed, kind = _parsed(url), (streams, body is None)
        if (headers := self._made.get(kind)) is None:
            headers = self._made[kind] = self._headers_of(parsed, *kind)
        # The other waits are bounded by `RetryPolicy`.
        timeout = {"connect": connect_s, "read": None, "write": None, "pool": None}
        return httpx.Request(method, parsed, headers=headers, content=body, extensions={"timeout": timeout})

    def _headers_of(self, url: httpx.URL, streams: bool, empty: bool) -> httpx.Headers:
        given = {
            "host": url.netloc.decode("ascii"),
            "accept": "text/event-stream" if streams else "application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": f"kelpie/{__version__}",
        }
        return httpx.Headers(given | ({} if empty else {"content-type": "application/json"}) | dict(self._headers))

    async def _refusal(self, response: httpx.Response, model: str | None) -> ModelError:
        return provider_errors.refused(
            self.endpoint,
            response.status_code,
            await _beginning(response),
            model=model,
            retry_after_s=retry_after_s(response.headers, self._world.clock.now()),
        )


@lru_cache(maxsize=256)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


async def _beginning(response: httpx.Response) -> bytes:
    """As much of an error's text as arrives; its status is known already and matters more."""
    text = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as chunks:  # pyright: ignore[reportArgumentType]
            async for chunk in chunks:
                text += chunk
                if len(text) >= ERROR_BYTES_MAX:
                    break
    except (httpx.HTTPError, ModelError):
        return bytes(text)
    return bytes(text[:ERROR_BYTES_MAX])
