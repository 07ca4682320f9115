"""The ways out of a real cell: to whoever answers its doors, and to nobody else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.confinement import Confinement
from kelpie.sandbox.port import JobEnding
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.clock import SystemClock
from kelpie.world.egress.broker import Listener, LocalBroker, socket_of
from tests.sandbox.jobs import script

ASK = """
import urllib.request, urllib.error
for url in {urls!r}:
    try:
        print(urllib.request.urlopen(url, timeout=25).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError as error:
        print(type(error).__name__)
"""


class Api:
    """Stands in for our API: it says which passport it was opened for."""

    def __init__(self) -> None:
        self.servers: list[asyncio.Server] = []

    async def __call__(self, listener: Listener, passport: str) -> "_Closing":
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + passport.encode())
            writer.close()

        self.servers.append(await asyncio.start_server(answer, sock=socket_of(listener)))
        return _Closing(self.servers[-1])


class _Closing:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    async def close(self) -> None:
        self._server.close()


Made = Callable[[LocalBroker], ProcessSandbox]


@pytest.fixture
async def made(cells: BubblewrapCells) -> AsyncIterator[Made]:
    """Makes a sandbox with a broker, and ends it."""
    found: list[ProcessSandbox] = []

    def make(broker: LocalBroker) -> ProcessSandbox:
        found.append(ProcessSandbox(cells, SystemClock(), broker))
        return found[-1]

    yield make
    for sandbox in found:
        await sandbox.close()


@asynccontextmanager
async def _web() -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nthe web")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_passport_opens_our_api_and_only_while_the_job_runs(made: Made) -> None:
    broker, api = LocalBroker(), Api()
    broker.api = api
    sandbox = made(broker)
    source = ASK.format(urls=["http://127.0.0.1:8283/"])
    with_passport, without = await asyncio.gather(
        sandbox.run(replace(script(source), passport="for this job")), sandbox.run(script(source))
    )
    assert with_passport.stdout == b"for this job\n"
    assert without.stdout == b"URLError\n"
    assert [server.is_serving() for server in api.servers] == [False]


async def test_only_listed_hosts_can_be_reached_and_only_through_the_proxy(made: Made) -> None:
    sandbox = made(LocalBroker(private=True))
    async with _web() as port:
        here = f"localhost:{port}"
        direct = f"import os\nos.environ.clear()\n{ASK.format(urls=[f'http://127.0.0.1:{port}/'])}"
        source = (
            f"import os\nos.environ['no_proxy'] = ''\n{ASK.format(urls=[f'http://{here}/', 'http://example.com/'])}"
        )
        listed = Confinement(egress=(here,))
        reached, closed, around = await asyncio.gather(
            sandbox.run(script(source, listed)), sandbox.run(script(source)), sandbox.run(script(direct, listed))
        )
    assert reached.stdout == b"the web\n403\n", reached.stderr
    assert closed.stdout == b"URLError\nURLError\n"
    assert around.stdout == b"URLError\n", "the cell has no other way out"


async def test_what_lies_inside_stays_closed_also_when_it_is_listed(made: Made) -> None:
    sandbox = made(LocalBroker())
    async with _web() as port:
        urls = [f"http://localhost:{port}/", f"http://127.0.0.1:{port}/", "http://169.254.169.254/latest/"]
        source = f"import os\nos.environ['no_proxy'] = ''\n{ASK.format(urls=urls)}"
        listed = Confinement(egress=(f"localhost:{port}", f"127.0.0.1:{port}", "169.254.169.254"))
        assert (await sandbox.run(script(source, listed))).stdout == b"403\n403\n403\n"


async def test_a_list_that_is_none_is_told_and_nothing_runs(made: Made) -> None:
    sandbox = made(LocalBroker())
    with pytest.raises(ToolError, match="is not a host"):
        await sandbox.run(script("print(1)", Confinement(egress=("http://example.com",))))


async def test_code_that_waits_for_code_does_not_take_its_place(cells: BubblewrapCells) -> None:
    """As many callers as there are places would otherwise wait for each other until their time is over."""
    broker = LocalBroker()
    sandbox = ProcessSandbox(cells, SystemClock(), broker, cells_max=2, warm_max=0)

    async def nested(listener: Listener, passport: str) -> _Closing:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            level = int(passport) + 1
            ended = await sandbox.run(replace(script(DEEPER if level < 3 else "print('deep')"), **_asked(level)))
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + ended.stdout.strip())
            writer.close()

        return _Closing(await asyncio.start_server(answer, sock=socket_of(listener)))

    broker.api = nested
    asked = [sandbox.run(replace(script(DEEPER), **_asked(0))) for _ in range(4)]
    try:
        assert [ended.stdout for ended in await asyncio.gather(*asked)] == [b"deep\n"] * 4
        assert sandbox.counts()["waiting"] == 0
    finally:
        await sandbox.close()


DEEPER = ASK.format(urls=["http://127.0.0.1:8283/"])


def _asked(level: int) -> dict[str, Any]:
    return {"passport": str(level), "level": level}


async def test_a_sandbox_that_closes_under_a_job_ends_it_well(cells: BubblewrapCells) -> None:
    """Its door is still being closed when nothing of its cell is left; what it printed is told nevertheless."""
    broker, begun, buried = LocalBroker(), asyncio.Event(), asyncio.Event()
    sandbox = ProcessSandbox(cells, SystemClock(), broker, warm_max=0)

    class Slow(_Closing):
        async def close(self) -> None:
            await buried.wait()
            await super().close()

    async def api(listener: Listener, passport: str) -> Slow:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            begun.set()

        return Slow(await asyncio.start_server(answer, sock=socket_of(listener)))

    broker.api = api
    source = f"print('begun', flush=True)\n{DEEPER}"
    running = asyncio.create_task(sandbox.run(replace(script(source), **_asked(0))))
    async with asyncio.timeout(60):
        await begun.wait()
        await asyncio.gather(*(cell.kill() for cell in sandbox._running.values()))
        buried.set()
        ended = await running
    assert (ended.how, ended.stdout) == (JobEnding.crashed, b"begun\n") and ended.cpu_us >= 0
    await sandbox.close()
