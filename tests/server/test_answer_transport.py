"""The head of an answer goes out with the first part of its body, and never later than it would be missed."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from kelpie.server.edge.answer_transport import AnswerTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def answering() -> tuple[AnswerTransport, Wire]:
    wire = Wire()
    return AnswerTransport(cast(Any, wire), asyncio.get_running_loop()), wire


async def test_head_and_body_are_one_write() -> None:
    transport, wire = answering()
    transport.write(HEAD)
    transport.write(b"body")
    assert wire.writes == [HEAD + b"body"]
    transport.write(b"more")
    await asyncio.sleep(0)
    assert wire.writes == [HEAD + b"body", b"more"]


async def test_a_head_without_a_body_does_not_wait_for_it() -> None:
    transport, wire = answering()
    transport.write(HEAD)
    assert wire.writes == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert wire.writes == [HEAD]
    transport.write(b"an event, later")
    assert wire.writes == [HEAD, b"an event, later"]


async def test_a_connection_that_closes_sends_its_head_first() -> None:
    transport, wire = answering()
    transport.write(HEAD)
    transport.close()
    assert wire.writes == [HEAD] and wire.closed and transport.is_closing()
    await asyncio.sleep(0)
    assert wire.writes == [HEAD]


async def test_nothing_is_written_to_a_connection_that_was_lost() -> None:
    transport, wire = answering()
    transport.write(HEAD)
    wire.closed = True
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert wire.writes == []
