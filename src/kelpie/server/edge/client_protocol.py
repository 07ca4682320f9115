"""HTTP connections of clients: a deadline for the head of a request, and the limits on connections.

The deadline runs from the connection, or from the first byte after an answer, to the end of the head. While a request
is answered, its own time-outs hold; between requests the keep-alive time-out of uvicorn does.
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from kelpie.server.edge.authentication import EXEMPT
from kelpie.server.edge.connection_limits import ConnectionLimits, Refusal
from kelpie.server.edge.http_protocol import BoundedProtocol
from kelpie.server.http.errors import refused
from kelpie.server.http.json_answer import JsonAnswer

RETRY_AFTER_S = 1
_LATE_BODY = b'{"detail":"The request head did not arrive in time; send the request again.","code":"head_late"}'
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_LATE_BODY), _LATE_BODY)
)


class ClientProtocol(BoundedProtocol):
    """One connection of a client."""

    def __init__(self, *, limits: ConnectionLimits, head_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._head_s = head_s
        self._deadline: asyncio.TimerHandle | None = None
        self._refusal: Refusal | None = None
        self._address = ""
        self._heard = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._refusal = self._limits.enter(self, self._address)
        if self._refusal is not None:
            self._limits.keep_for_health(self, self._refusal, self._address)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._limits.leave(self)
        self._limits.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        super().data_received(data)
        # A body that is still read after its answer has this deadline as well: no other time-out holds for it.
        if self._deadline is None and self._is_unoccupied() and self.timeout_keep_alive_task is None:
            self._start_deadline()

    def on_headers_complete(self) -> None:
        self._stop_deadline()
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._refusal = self._limits.enter(self, self._address)
            if self._refusal is None:  # a place became free in the meantime
                self._limits.drop(self)
        self._limits.set_busy(self)
        if self._refusal is not None:
            app: Any = self.config.loaded_app
            self.app = HealthOnly(app, self._refusal)
        super().on_headers_complete()
        if self._refusal is not None:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_unoccupied() and not self.transport.get_write_buffer_size():
            self._limits.set_idle(self)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._is_unoccupied():  # that was the rest of a body whose answer was sent before
            self._stop_deadline()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def abort(self) -> None:
        """Ends the connection at once."""
        self.transport.abort()

    def _is_unoccupied(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._head_s, self._end_late)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        self._deadline = None
        self._limits.note_late_head(self._address)
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # it does not read its answers either
            return
        if self._heard:  # an answer to nothing could be taken for the answer to a request that is under way
            self.transport.write(_LATE)
        self.transport.close()


class HealthOnly:
    """The application for a connection that has no place: it answers health checks and refuses everything else."""

    def __init__(self, app: ASGIApp, refusal: Refusal) -> None:
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in EXEMPT or path.replace("/latest/", "/v1/", 1) in EXEMPT:
            await self._app(scope, receive, send)
            return
        await refusal_answer(self._refusal)(scope, receive, send)


def refusal_answer(refusal: Refusal) -> JsonAnswer:
    """The answer to a request for which there is no place."""
    headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
    return refused(refusal.code, refusal.detail, headers)
