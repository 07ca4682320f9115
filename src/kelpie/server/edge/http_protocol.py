"""uvicorn's HTTP protocol with bounds that hold before a request is known.

A client could otherwise send a head without an end, or hold thousands of connections, and no middleware would ever be
asked about it. Whole requests are judged by `guard.py`.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kelpie.server.edge.answer_transport import AnswerTransport

HEAD_BYTES_MAX = 256 * 1024  # of what is read and is no body; heads that can still be answered are refused with less
FRAMING_PER_BYTE_MAX = 8  # what a body in chunks costs besides, at the worst
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    connections_max: int | None = None
    _read_bytes = 0  # of the request that is being read
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self.connections_max is not None and len(self.connections) > self.connections_max:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._read_bytes += len(data)
        super().data_received(data)
        if self._read_bytes - FRAMING_PER_BYTE_MAX * self._body_bytes > HEAD_BYTES_MAX:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._read_bytes = self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            transport: Any = AnswerTransport(self.transport, self.loop)
            self.cycle.transport = transport

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)
