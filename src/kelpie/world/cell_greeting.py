"""The first words of a cell: which process will run the order, and the doors it hands out."""

import array
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

BYTES_MAX, DOORS = 4096, 2
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as the kernel vouches for them


@dataclass(frozen=True, slots=True)
class Greeting:
    """The process is named as this side knows it; fewer doors than there are come where descriptors have run out."""

    process: int
    doors: Sequence[socket.socket]


def expect(control: socket.socket) -> None:
    """Asks the kernel to say who sends; before there is anybody who could send."""
    control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def receive(control: socket.socket) -> Greeting | None:
    """What the launcher sent; None when it went away instead."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(DOORS * array.array("i").itemsize)
    message, ancillary, _, _ = control.recvmsg(BYTES_MAX, room)
    process, descriptors = 0, array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            process = _CREDENTIALS.unpack_from(data)[0]
    doors = [socket.socket(fileno=each) for each in descriptors]
    return Greeting(process, doors) if message else None
