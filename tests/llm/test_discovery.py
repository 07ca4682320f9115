"""The search for model servers on this machine, on virtual time: how long it may take, and how often it is repeated."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest

from kelpie.llm.local import discovery
from kelpie.llm.local.discovery import FoundServer
from kelpie.llm.routing.discovered_servers import DiscoveredServers
from kelpie.llm.routing.providers import ConfiguredProvider
from tests.llm.fakes import TransportHttp, world
from tests.llm.test_retry import in_virtual_time, now

LIMIT_S = 0.3  # as docs/models.md says
VLLM = {"data": [{"id": "m", "owned_by": "vllm"}]}


class SlowMachine(TransportHttp):
    """A server of vLLM on each port, with the time that it takes to accept a connection and to answer each request."""

    def __init__(self, accepts_s: Mapping[int, float], answers_s: Mapping[int, float]) -> None:
        super().__init__(httpx.MockTransport(self._answer))
        self._accepts_s = accepts_s
        self._answers_s = answers_s
        self.asked: list[tuple[int, float]] = []  # ports, and when they were asked

    async def listens(self, host: str, port: int) -> bool:
        self.asked.append((port, now()))
        await asyncio.sleep(self._accepts_s.get(port, 0.0))
        return True

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self._answers_s.get(request.url.port or 0, 0.0))
        return httpx.Response(200, json=VLLM) if request.url.path == "/v1/models" else httpx.Response(404)


@pytest.mark.parametrize(
    ("accepts_s", "answers_s"),
    [({11434: 60.0}, {}), ({}, {11434: 60.0}), ({11434: 0.2}, {11434: 0.2})],
    ids=["accepts no connection", "does not answer", "is slow at each"],
)
def test_a_server_that_takes_longer_is_left_alone_and_delays_nobody(
    accepts_s: dict[int, float], answers_s: dict[int, float]
) -> None:
    machine = SlowMachine(accepts_s, answers_s)

    async def main() -> tuple[list[FoundServer], float]:
        return await discovery.look(world(machine)), now()

    found, ended_s = in_virtual_time(main)
    assert [server.kind for server in found] == ["vllm"], "of several servers of a kind, the first"
    assert found[0].url == "http://127.0.0.1:1234", "the slow one on the first port is not found"
    assert ended_s == pytest.approx(LIMIT_S, abs=0.01)
    assert {port for port, _ in machine.asked} == {11434, 1234, 8000, 8080}
    assert all(at_s < LIMIT_S for _, at_s in machine.asked), "all at once"


def test_a_server_that_just_answers_in_time_is_found() -> None:
    async def main() -> list[FoundServer]:
        return await discovery.look(world(SlowMachine({8000: 0.25}, {1234: 60, 11434: 60, 8080: 60})))

    assert in_virtual_time(main) == [FoundServer("vllm", "http://127.0.0.1:8000")]


class UnloadedMachine(SlowMachine):
    """A machine whose first transport imports the HTTP client, which takes longer than a server may take."""

    loaded = False

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        if not self.loaded:
            self.loaded, loop, then_s = True, asyncio.get_running_loop(), now() + 1.0
            before = loop.time
            loop.time = lambda: max(before(), then_s)
        return super().transport(public=public)


def test_the_time_that_the_first_request_takes_to_load_its_client_is_not_the_servers() -> None:
    machine = UnloadedMachine({8000: 0.1}, {8000: 0.1, 1234: 60, 11434: 60, 8080: 60})

    async def main() -> list[FoundServer]:
        return await discovery.look(world(machine))

    assert in_virtual_time(main) == [FoundServer("vllm", "http://127.0.0.1:8000")]
    assert machine.loaded


class EmptyMachine(SlowMachine):
    """A machine on which nothing listens."""

    async def listens(self, host: str, port: int) -> bool:
        return False

    def transport(self, *, public: bool = False) -> httpx.AsyncBaseTransport:
        raise AssertionError("nothing listens, so no HTTP client is needed")


def test_where_nothing_listens_no_client_is_loaded() -> None:
    assert in_virtual_time(lambda: discovery.look(world(EmptyMachine({}, {})))) == []


def test_a_search_is_repeated_after_the_interval_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []
    there = FoundServer("vllm", "http://127.0.0.1:8000")

    async def look(_: object) -> list[FoundServer]:
        looked.append(now())
        await asyncio.sleep(0.1)
        return [there] if len(looked) > 1 else []

    monkeypatch.setattr(discovery, "look", look)

    async def main() -> list[int]:
        made: list[FoundServer] = []

        def make(server: FoundServer) -> ConfiguredProvider:
            made.append(server)
            return ConfiguredProvider(None)  # type: ignore[arg-type]

        servers = DiscoveredServers(world(), make, 30.0)
        counts = [len(each) for each in await asyncio.gather(servers.new(), servers.new())]
        await asyncio.sleep(29.9)
        counts.append(len(await servers.new()))
        await asyncio.sleep(0.2)
        counts += [len(await servers.new()), len(await servers.new())]
        await asyncio.sleep(31)
        counts.append(len(await servers.new()))
        assert made == [there]
        return counts

    assert in_virtual_time(main) == [0, 0, 0, 1, 0, 0], "it is returned once, when it is new"
    assert looked == [pytest.approx(at_s, abs=0.05) for at_s in (0.0, 30.2, 61.3)]
