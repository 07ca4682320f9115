"""The handshake of a cell: the process that will run the order, its user, and the listening sockets of the cell.

Before that, bubblewrap reports which process is the first in the cell.
"""

import array
import asyncio
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

BYTES_MAX, SOCKETS = 4096, 2
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as the kernel vouches for them


@dataclass(frozen=True, slots=True)
class Handshake:
    """Process and user as the host knows them. If descriptors have run out, some sockets are missing."""

    process: int
    user: int
    sockets: Sequence[socket.socket]


class Report:
    """Bubblewrap's first report: the id of the first process in the cell. One waiter may give up, and another
    continue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, information: int) -> None:
        os.set_blocking(information, False)
        self._loop = loop
        self._information = information
        self._received = b""

    async def first(self) -> int | None:
        """The first process in the cell; None if bubblewrap ended instead."""
        seen = asyncio.Event()
        self._loop.add_reader(self._information, seen.set)
        try:
            while not self._received.endswith(b"}\n"):
                await seen.wait()
                seen.clear()
                try:
                    piece = os.read(self._information, BYTES_MAX)
                except BlockingIOError:
                    continue  # we were woken twice for one piece
                if not piece:
                    return None
                self._received += piece
        finally:
            self._loop.remove_reader(self._information)
        process: int = json.loads(self._received)["child-pid"]
        return process


def expect(control: socket.socket) -> None:
    """Asks the kernel to attach the sender's credentials; called before any sender exists."""
    control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def receive(control: socket.socket) -> Handshake | None:
    """The launcher's message; None if the launcher ended instead."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(SOCKETS * array.array("i").itemsize)
    message, ancillary, _, _ = control.recvmsg(BYTES_MAX, room)
    process, user, descriptors = 0, -1, array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            process, user, _ = _CREDENTIALS.unpack_from(data)
    sockets = [socket.socket(fileno=each) for each in descriptors]
    return Handshake(process, user, sockets) if message else None
