"""The part of an event loop that reaches outside, refused: no sockets, no threads, no processes.

Product code takes these from the World; a library that bypasses it fails here.
"""

import asyncio
import threading  # noqa: TID251 - only to notice that a library started one
from collections.abc import Callable
from contextvars import Context
from typing import Any, NoReturn, TypeVar

from kelpie.sim.loop.errors import NotSimulated

T = TypeVar("T")


class OfflineLoop(asyncio.BaseEventLoop):
    """A loop of one thread that itself runs work meant for a thread pool."""

    _thread_id: int | None  # of BaseEventLoop; the canary test notices when Python changes it

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._thread_id is not None and self._thread_id != threading.get_ident():
            raise NotSimulated("a thread called into the simulation; product code must not start threads")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Runs func now, and sets its result a moment later, as a thread would."""
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - goes to the awaiting caller
            self.call_soon(_set_result, future, future.set_exception, error)
        else:
            self.call_soon(_set_result, future, future.set_result, result)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return

    def _refuse(self, *_args: object, **_options: object) -> NoReturn:
        raise NotSimulated("the simulation has no sockets, pipes or processes; take them from the World")

    getaddrinfo = getnameinfo = create_connection = create_server = create_datagram_endpoint = _refuse  # pyright: ignore[reportAssignmentType]
    subprocess_exec = subprocess_shell = connect_read_pipe = connect_write_pipe = _refuse  # pyright: ignore[reportAssignmentType]
    add_reader = add_writer = sock_recv = sock_sendall = sock_connect = sock_accept = _refuse  # pyright: ignore[reportAssignmentType]
    add_signal_handler = remove_signal_handler = _refuse  # pyright: ignore[reportAssignmentType]


def _set_result(future: asyncio.Future[Any], settle: Callable[[Any], None], value: object) -> None:
    if not future.done():
        settle(value)
