"""The simulated internet gives httpx the answers and the errors that real sockets give."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest

from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.network import Network
from kelpie.sim.network.outgoing_http import Internet, OutgoingRequest, OutgoingResponse, SimHttp

T = TypeVar("T")
PLACE = "network.provider"
SEEDS = range(10)


class Peer:
    """A server that echoes, streams, hangs or cuts, as its path says, and remembers whom it served."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.finished: list[str] = []

    async def __call__(self, asked: OutgoingRequest, answer: OutgoingResponse) -> None:
        self.served.append(asked.path)
        if asked.path == "/hang":
            await asyncio.sleep(10_000)
        await answer.start(200, {"x-method": asked.method})
        if asked.path.startswith("/echo"):
            await answer.send(asked.body)
        else:
            for number in range(20):
                if asked.path == "/cut" and number == 3:
                    answer.cut()
                    return
                await answer.send(b"%d;" % number)
                await asyncio.sleep(0.01)
        self.finished.append(asked.path)


def play(
    body: Callable[[httpx.AsyncClient, Peer, Node], Awaitable[T]],
    *aims: Aim,
    seed: int = 0,
    must_fire: bool = True,
    timeout_s: float = 30.0,
) -> T:
    async def main(loop: SimLoop) -> T:
        faults = Faults(loop, aims)
        internet, node, peer = Internet(Network(loop, faults)), Node("n"), Peer()
        internet.host("peer.sim", peer)
        client = httpx.AsyncClient(
            transport=SimHttp(internet, node).transport(), base_url="http://peer.sim", timeout=timeout_s
        )
        result = await body(client, peer, node)
        await client.aclose()
        for aim in aims:
            assert faults.fired(aim.fault, aim.place) or not must_fire
        return result

    loop = SimLoop(seed)
    result = simulate(main, loop).get()
    assert loop.unhandled == []
    return result


def test_a_request_gets_its_answer() -> None:
    async def body(client: httpx.AsyncClient, _peer: Peer, _node: Node) -> None:
        answers = await asyncio.gather(*(client.post(f"/echo?{n}", content=f"body {n}") for n in range(20)))
        assert [answer.text for answer in answers] == [f"body {n}" for n in range(20)]
        assert answers[0].headers["x-method"] == "POST"

    for seed in SEEDS:
        play(body, seed=seed)


def test_a_stream_comes_in_pieces_and_in_order() -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, _node: Node) -> None:
        pieces: list[str] = []
        async with client.stream("GET", "/stream") as response:
            async for piece in response.aiter_text():
                if not pieces:
                    assert peer.finished == [], "the first piece is here before the last was sent"
                pieces.append(piece)
        assert "".join(pieces) == "".join(f"{n};" for n in range(20))

    for seed in SEEDS:
        play(body, seed=seed)
        play(
            body,
            Aim(Fault.network_delay, PLACE, rate=0.3),
            Aim(Fault.network_message_reorder, PLACE, rate=0.3),
            Aim(Fault.network_partition, PLACE, rate=0.1, times_max=1),
            seed=seed,
            must_fire=False,
        )


def test_an_unknown_host_is_a_connect_error() -> None:
    async def body(client: httpx.AsyncClient, _peer: Peer, _node: Node) -> None:
        with pytest.raises(httpx.ConnectError):
            await client.get("http://nowhere.sim/")

    play(body)


@pytest.mark.parametrize(
    ("nth", "error", "served"),
    [
        (1, httpx.ConnectError, False),  # the handshake
        (2, httpx.ConnectError, False),  # its answer
        (3, httpx.ReadError, False),  # the request
        (4, httpx.ReadError, True),  # the head of the answer
        (5, httpx.ReadError, True),  # its body
        (6, httpx.ReadError, True),  # its end
    ],
)
def test_a_lost_packet_resets_the_connection(nth: int, error: type[Exception], served: bool) -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, _node: Node) -> None:
        with pytest.raises(error):
            await client.post("/echo", content=b"x")
        assert bool(peer.served) is served
        assert (await client.post("/echo", content=b"again")).text == "again"

    for seed in SEEDS:
        play(body, Aim(Fault.network_packet_loss, PLACE, nth=nth), seed=seed)


def test_a_cut_stream_is_a_protocol_error() -> None:
    async def body(client: httpx.AsyncClient, _peer: Peer, _node: Node) -> None:
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            await client.get("/cut")

    play(body)


def test_silence_is_a_read_timeout_and_the_server_is_told_to_stop() -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, _node: Node) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/hang")
        assert 30 <= asyncio.get_running_loop().time() < 31
        await asyncio.sleep(20_000)
        assert peer.finished == []

    play(body)


def test_a_partition_is_a_connect_timeout_and_heals() -> None:
    async def body(client: httpx.AsyncClient, _peer: Peer, _node: Node) -> None:
        with pytest.raises(httpx.ConnectTimeout):
            await client.get("/echo")
        await asyncio.sleep(60)
        assert (await client.post("/echo", content=b"healed")).text == "healed"

    play(body, Aim(Fault.network_partition, PLACE, nth=1), timeout_s=0.4)


def test_delay_takes_virtual_time() -> None:
    async def body(client: httpx.AsyncClient, _peer: Peer, _node: Node) -> float:
        assert (await client.post("/echo", content=b"late")).text == "late"
        return asyncio.get_running_loop().time()

    assert play(body) < 0.1
    assert play(body, Aim(Fault.network_delay, PLACE, rate=1.0)) > 1


def test_messages_of_two_connections_overtake_each_other() -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, _node: Node) -> list[str]:
        async def later() -> None:
            await asyncio.sleep(0.1)
            await client.post("/echo?second")

        await asyncio.gather(client.post("/echo?first"), later())
        return peer.served

    assert play(body) == ["/echo?first", "/echo?second"]
    reorder = Aim(Fault.network_message_reorder, PLACE, nth=3)  # the request of the first
    orders = {tuple(play(body, reorder, seed=seed)) for seed in SEEDS}
    assert ("/echo?second", "/echo?first") in orders


def test_a_client_that_leaves_ends_the_work_of_the_server() -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, _node: Node) -> None:
        async with client.stream("GET", "/stream") as response:
            async for _ in response.aiter_bytes():
                break
        await asyncio.sleep(10)
        assert peer.served == ["/stream"] and peer.finished == []

    for seed in SEEDS:
        play(body, seed=seed)


def test_the_death_of_a_node_resets_its_connections_but_not_what_was_sent() -> None:
    async def body(client: httpx.AsyncClient, peer: Peer, node: Node) -> None:
        asking = asyncio.get_running_loop().create_task(_ask(client), context=node.context())
        await asyncio.sleep(0.05)
        assert peer.served == ["/stream"]
        node.crash()
        await asyncio.sleep(10)
        assert peer.finished == [] and not asking.done()

    play(body)


async def _ask(client: httpx.AsyncClient) -> None:
    await client.get("/stream")
