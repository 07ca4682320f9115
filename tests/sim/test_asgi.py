"""Clients of the simulated server see streams as they come, and the server sees clients that are slow or leave."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.http_client import ClientDisconnected, ClientTimeout, ServerDown, SimClient
from kelpie.sim.network.http_server import Server
from kelpie.sim.network.network import WINDOW, ConnectionLost, Network

SEEDS = range(10)


class Door:
    """A FastAPI application that remembers how far it came."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended: list[str] = []
        self.app = FastAPI()
        self.app.add_api_route("/echo", self.echo, methods=["POST"])
        self.app.add_api_route("/slow", self.slow)
        self.app.add_api_route("/broken", self.broken)
        self.app.add_api_route("/half", self.half)
        self.app.add_api_route("/events", self.events)

    async def echo(self, request: Request, q: str = "") -> dict[str, Any]:
        return {"body": await request.json(), "q": q}

    async def slow(self) -> str:
        await asyncio.sleep(10)
        self.ended.append("slow")
        return "done"

    async def broken(self) -> None:
        raise ValueError("a bug")

    async def half(self) -> StreamingResponse:
        async def body() -> Any:
            yield b"one"
            raise ValueError("a bug in the middle")

        return StreamingResponse(body())

    async def events(self) -> StreamingResponse:
        async def body() -> Any:
            try:
                for number in range(100):
                    self.sent = number + 1
                    yield f"event: n\nid: {number}\ndata: {number}\n\n: a comment\n\n"
                    await asyncio.sleep(0.01)
                self.ended.append("events")
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise

        return StreamingResponse(body(), media_type="text/event-stream")


def play(
    body: Callable[[SimClient, Door, Node], Awaitable[None]], *aims: Aim, seed: int = 0, unhandled: int = 0
) -> None:
    async def main(loop: SimLoop) -> None:
        faults, node, door = Faults(loop, aims), Node("n"), Door()
        server = Server(Network(loop, faults), node, door.app)
        await body(SimClient("c", lambda: server, faults), door, node)
        for aim in aims:
            assert faults.fired(aim.fault, aim.place)

    loop = SimLoop(seed)
    simulate(main, loop).get()
    assert len(loop.unhandled) == unhandled, loop.unhandled


def test_a_request_gets_its_answer() -> None:
    async def body(client: SimClient, _door: Door, _node: Node) -> None:
        big = "x" * 300_000
        response = await client.request("POST", "/echo?q=a%20b", {"text": big})
        assert response.status == 200
        assert response.json() == {"body": {"text": big}, "q": "a b"}
        assert response.headers["content-type"] == "application/json"
        assert (await client.request("GET", "/nothing")).status == 404

    for seed in SEEDS:
        play(body, seed=seed)


def test_events_arrive_while_the_server_is_still_sending() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        seen: list[str] = []
        async with client.stream("GET", "/events") as stream:
            assert stream.status == 200
            async for event in stream.events():
                if not seen:
                    assert door.sent < 50
                assert (event.event, event.id) == ("n", event.data)
                seen.append(event.data)
        assert seen == [str(n) for n in range(100)]
        assert door.ended == ["events"]

    for seed in SEEDS:
        play(body, seed=seed)


def test_a_slow_reader_holds_up_the_server_within_a_bound() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        async with client.stream("GET", "/events") as stream:
            chunks = stream.chunks()
            await anext(chunks)
            await asyncio.sleep(3600)
            assert WINDOW // 2 <= door.sent <= WINDOW + 2
            async for _ in chunks:
                pass
        assert door.sent == 100

    for seed in SEEDS:
        play(body, seed=seed)


def test_the_slow_client_fault_slows_a_client() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        await client.request("GET", "/events")
        assert asyncio.get_running_loop().time() > 20

    play(body, Aim(Fault.slow_client, "client.read", rate=0.5))


def test_leaving_in_the_middle_of_a_stream_ends_it_on_the_server() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        async with client.stream("GET", "/events") as stream:
            async for _ in stream.chunks():
                break
        await asyncio.sleep(10)
        assert door.ended == ["cancelled"]
        assert door.sent < 50

    for seed in SEEDS:
        play(body, seed=seed)


def test_a_client_that_vanishes_after_its_request_was_still_heard() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        with pytest.raises(ClientDisconnected):
            await client.request("GET", "/slow")
        await asyncio.sleep(20)
        assert door.ended == ["slow"]

    for seed in SEEDS:
        play(body, Aim(Fault.vanishing_client, "client.request", nth=1), seed=seed)


def test_a_client_that_vanishes_in_a_stream() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        with pytest.raises(ClientDisconnected):
            await client.request("GET", "/events")
        await asyncio.sleep(20)
        assert door.ended == ["cancelled"]

    play(body, Aim(Fault.vanishing_client, "client.stream", nth=3))


def test_a_client_does_not_wait_for_ever() -> None:
    async def body(client: SimClient, door: Door, _node: Node) -> None:
        with pytest.raises(ClientTimeout):
            await client.request("GET", "/slow", timeout_s=5)

    play(body)


def test_a_crash_resets_the_connection_and_refuses_new_ones() -> None:
    async def body(client: SimClient, door: Door, node: Node) -> None:
        asking = asyncio.ensure_future(client.request("GET", "/slow"))
        await asyncio.sleep(1)
        node.crash()
        with pytest.raises(ConnectionLost):
            await asking
        with pytest.raises(ServerDown):
            await client.request("GET", "/slow")
        await asyncio.sleep(100)
        assert door.ended == []

    for seed in SEEDS:
        play(body, seed=seed)


def test_a_bug_in_the_application_is_a_500_and_is_reported() -> None:
    async def body(client: SimClient, _door: Door, _node: Node) -> None:
        response = await client.request("GET", "/broken")
        assert (response.status, response.body) == (500, b"Internal Server Error")

    play(body, unhandled=1)


def test_a_bug_in_the_middle_of_an_answer_cuts_it() -> None:
    async def body(client: SimClient, _door: Door, _node: Node) -> None:
        with pytest.raises(ConnectionLost, match="in the middle"):
            await client.request("GET", "/half")

    play(body, unhandled=1)


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_lost_packet_is_a_lost_connection_and_never_half_an_answer(nth: int) -> None:
    async def body(client: SimClient, _door: Door, _node: Node) -> None:
        with pytest.raises(ConnectionLost):
            await client.request("POST", "/echo", {"a": 1})
        assert (await client.request("POST", "/echo", {"a": 2})).json()["body"] == {"a": 2}

    for seed in SEEDS:
        play(body, Aim(Fault.network_packet_loss, "network.client", nth=nth), seed=seed)
