"""The `Cells` port in the simulation: no process is started; the program of a cell is a function of the scenario.

Cells take time to start and to die, die while they wait, are refused by an exhausted machine, and break under their
code: before or after its effect, or in the middle of a request to Kelpie's API. The function stands for the code of a
tool; the server sees only its output, and its requests on the API socket of the cell.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Confinement, Mount
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.node import Node
from kelpie.sim.network.http_client import Response
from kelpie.sim.network.network import ConnectionLost, Network
from kelpie.sim.ports.cell_api import SimCellApi
from kelpie.world.cells.port import CellPlan, CellSockets, ChannelClosed, Order, OrderOutput
from kelpie.world.http.port import Http

START_S = (0.01, 0.2)
KILL_S = (0.001, 0.1)
FOR_EVER_S = 24 * 3600.0
STRUCK_S = (0.0, 0.01)  # into a request to our API, when the cell breaks under it
KILLED = 137
CPU_US, MEMORY_BYTES = 100_000, 10_000_000  # what every order takes, however it ends

_CALLING = "cells.calling"


class CellBroke(Exception):
    """The code stops here; the cell reports the ending."""

    def __init__(self, left: OrderOutput) -> None:
        super().__init__("the cell broke")
        self.left = left


@dataclass(frozen=True, slots=True)
class CellEnvironment:
    """The environment of code in a cell."""

    cells: "SimCells"
    request: Mapping[str, Any]
    env: Mapping[str, str]
    api_socket: SimCellApi
    mounts: tuple[Mount, ...]
    left_behind: list[asyncio.Task[None]]
    confinement: Confinement  # what it is held to

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.request.get("arguments") or {}

    @property
    def http(self) -> Http:
        """The network outside, as far as a scenario lets code reach it."""
        return self.cells.http

    async def ask(self, method: str, path: str, body: Any = None, *, passport: str | None = None) -> Response:
        """Sends a request to Kelpie's API, with the passport of this cell or another one. Raises ConnectionLost."""
        headers = {"authorization": f"Bearer {passport or self.env.get('LETTA_API_KEY', '')}"}
        asking = self.api_socket.client(self.cells.faults).request(
            method, path, body, headers=headers, timeout_s=FOR_EVER_S
        )
        faults = self.cells.faults
        if faults.fires(Fault.process_crash, _CALLING):
            raise CellBroke(await self._break_during(asking, _broken(b"killed while it asked")))
        if faults.fires(Fault.out_of_memory, _CALLING):
            raise CellBroke(await self._break_during(asking, _OUT_OF_MEMORY))
        if faults.fires(Fault.process_timeout, _CALLING):
            await self._break_during(asking, _OUT_OF_MEMORY)
            await asyncio.sleep(FOR_EVER_S)
        return await asking

    async def after_answer(self) -> None:
        """The code has the answer to a request, and the call has no result yet: here the power may be cut."""
        if self.cells.faults.fires(Fault.crash_after_write, "cells.told"):
            self.cells.node.crash()
            await asyncio.sleep(0)  # does not return

    def detach(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that goes on after the result, for as long as the cell lives."""
        self.left_behind.append(asyncio.create_task(_quietly(work)))

    async def _break_during(self, asking: Awaitable[Response], left: OrderOutput) -> OrderOutput:
        """Lets the request go on for a moment, in which it may have its effect or not."""
        task = asyncio.ensure_future(asking)
        await asyncio.wait((task,), timeout=self.cells.rng.uniform(*STRUCK_S))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return left


Code = Callable[[CellEnvironment], Awaitable[Any]]


async def no_code(inside: CellEnvironment) -> Any:
    """The default program of a cell: it returns its arguments."""
    return dict(inside.arguments)


class SimChannel:
    """Standard input and output of a program that stays and talks."""

    def __init__(self) -> None:
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._ended = False

    async def send(self, data: bytes) -> None:
        if self._ended:
            raise ChannelClosed
        self._input.put_nowait(data)

    async def receive(self) -> bytes:
        if self._ended and self._output.empty():
            return b""
        return await self._output.get()

    async def read(self) -> bytes:
        """The program reads what it was sent."""
        return await self._input.get()

    def write(self, data: bytes) -> None:
        """The program writes."""
        if not self._ended:
            self._output.put_nowait(data)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._output.put_nowait(b"")


Program = Callable[[CellEnvironment, SimChannel], Awaitable[None]]


async def no_program(inside: CellEnvironment, channel: SimChannel) -> None:
    """The default program that stays and talks: it ends at once."""


class SimCell:
    """One cell. Its output is on `output`, as with a real one."""

    def __init__(self, cells: "SimCells", api_socket: SimCellApi, mounts: tuple[Mount, ...]) -> None:
        self._mounts = mounts
        self.sockets: CellSockets | None = CellSockets(api=api_socket, egress=_ClosedSocket())
        self._api_socket = api_socket
        self._cells = cells
        self._left = OrderOutput(code=None, result=None, stdout=b"", stderr=b"")
        self._dead = cells.faults.fires(Fault.process_crash, "cells.waiting")
        self._given = False
        self._left_behind: list[asyncio.Task[None]] = []
        self._channel: SimChannel | None = None

    @property
    def alive(self) -> bool:
        return not self._dead and not self._given

    async def run(self, order: Order) -> None:
        """Runs its code, unless it breaks on the way."""
        self._given = True
        faults = self._cells.faults
        if faults.fires(Fault.process_crash, "cells.before"):
            self._left = _broken(b"killed before it began")
            return
        inside = self._environment(order)
        try:
            value = await self._cells.code(inside)
            told = {"ok": True, "text": str(value), "value": value}
        except (OSError, ConnectionLost) as error:
            told = {"ok": False, "error": f"OSError: {error}", "traceback": ""}
        except CellBroke as broke:
            self._left = broke.left
            return
        if faults.fires(Fault.process_timeout, "cells.run"):
            await asyncio.sleep(FOR_EVER_S)
        if faults.fires(Fault.out_of_memory, "cells.run"):
            self._left = _OUT_OF_MEMORY
            return
        if faults.fires(Fault.process_crash, "cells.after"):
            self._left = _broken(b"killed after its effect")
            return
        self._left = OrderOutput(code=0, result=json.dumps(told).encode(), stdout=b"", stderr=b"")

    async def connect(self, order: Order) -> SimChannel:
        """Starts its program, unless it breaks before."""
        self._given = True
        channel = self._channel = SimChannel()
        if self._cells.faults.fires(Fault.process_crash, "cells.before"):
            self._left = _broken(b"killed before it began")
            channel.end()
            return channel
        inside = self._environment(order)
        self._left_behind.append(asyncio.create_task(self._talk(inside, channel)))
        return channel

    async def _talk(self, inside: CellEnvironment, channel: SimChannel) -> None:
        try:
            await self._cells.program(inside, channel)
            self._left = OrderOutput(code=0, result=None, stdout=b"", stderr=b"")
        except CellBroke as broke:
            self._left = broke.left
        finally:
            channel.end()

    def _environment(self, order: Order) -> CellEnvironment:
        return CellEnvironment(
            self._cells,
            json.loads(order.request),
            order.env,
            self._api_socket,
            self._mounts,
            self._left_behind,
            order.confinement,
        )

    def output(self) -> OrderOutput:
        return replace(self._left, cpu_us=CPU_US, memory_peak_bytes=MEMORY_BYTES) if self._given else self._left

    async def kill(self) -> None:
        await asyncio.sleep(self._cells.rng.uniform(*KILL_S))
        self._dead = True
        for task in self._left_behind:
            task.cancel()
        if self._channel is not None:
            self._channel.end()
        self._api_socket.close()


class SimCells:
    """The cells of one life of a node."""

    lacking: str | None = None
    unbounded: str | None = None

    def __init__(
        self, network: Network, faults: Faults, node: Node, http: Http, code: Code, program: Program = no_program
    ) -> None:
        self.faults = faults
        self.http = http
        self.code = code
        self.program = program
        self.rng = network.loop.rng(f"cells/{node}")
        self._network = network
        self.node = node
        self._started = 0

    async def start(self, plan: CellPlan) -> SimCell:
        await asyncio.sleep(self.rng.uniform(*START_S))
        if self.faults.fires(Fault.process_resource_exhaustion, "cells.start"):
            raise SandboxUnavailable("a cell cannot be started: Resource temporarily unavailable")
        self._started += 1
        return SimCell(self, SimCellApi(self._network, self.node, f"cell-{self._started}"), plan.mounts)

    async def close(self) -> None:
        return


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Work that goes on after a result ends without an error."""
    with suppress(CellBroke, ConnectionLost):
        await work


class _ClosedSocket:
    """A closed API socket."""

    def close(self) -> None:
        return


_OUT_OF_MEMORY = OrderOutput(code=KILLED, result=None, stdout=b"", stderr=b"", out_of_memory=True)


def _broken(stderr: bytes) -> OrderOutput:
    return OrderOutput(code=KILLED, result=None, stdout=b"", stderr=stderr)
