"""The `Cells` port in the simulation: no process is started; what would run in a cell is a function of the scenario.

Cells take time to start and to die, die while they wait, are refused by an exhausted machine, and break under their
code before or after its effect. The function stands for the code of a tool; the server sees only what it leaves.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kelpie.core.errors import SandboxUnavailable
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop import SimLoop
from kelpie.sim.node import Node
from kelpie.world.cells import Doors, Left, Order, Plan
from kelpie.world.http import Http

START_S = (0.01, 0.2)
KILL_S = (0.001, 0.1)
FOR_EVER_S = 24 * 3600.0
KILLED = 137

Code = Callable[[Http, Mapping[str, Any]], Awaitable[Any]]


async def no_code(http: Http, arguments: Mapping[str, Any]) -> Any:
    """What runs where a scenario names nothing: it gives its arguments back."""
    return dict(arguments)


class SimCell:
    """One cell. What it did is on `left`, as with a real one."""

    doors: Doors | None = None

    def __init__(self, cells: "SimCells") -> None:
        self._cells = cells
        self._left = Left(code=None, result=None, stdout=b"", stderr=b"")
        self._dead = cells.faults.fires(Fault.process_crash, "cells.waiting")
        self._given = False

    @property
    def alive(self) -> bool:
        return not self._dead and not self._given

    async def run(self, order: Order) -> None:
        """Does what its code does, unless it breaks on the way."""
        self._given = True
        faults = self._cells.faults
        if faults.fires(Fault.process_crash, "cells.before"):
            self._left = _broken(b"killed before it began")
            return
        arguments = json.loads(order.request).get("arguments") or {}
        try:
            value = await self._cells.code(self._cells.http, arguments)
            told = {"ok": True, "value": value, "text": str(value)}
        except OSError as error:
            told = {"ok": False, "error": f"OSError: {error}", "traceback": ""}
        if faults.fires(Fault.process_timeout, "cells.run"):
            await asyncio.sleep(FOR_EVER_S)
        if faults.fires(Fault.out_of_memory, "cells.run"):
            self._left = Left(code=KILLED, result=None, stdout=b"", stderr=b"", out_of_memory=True)
            return
        if faults.fires(Fault.process_crash, "cells.after"):
            self._left = _broken(b"killed after its effect")
            return
        self._left = Left(code=0, result=json.dumps(told).encode(), stdout=b"", stderr=b"")

    def left(self) -> Left:
        return self._left

    async def kill(self) -> None:
        self._dead = True
        await asyncio.sleep(self._cells.rng.uniform(*KILL_S))


class SimCells:
    """The cells of one life of a node."""

    lacking: str | None = None

    def __init__(self, loop: SimLoop, faults: Faults, node: Node, http: Http, code: Code) -> None:
        self.faults = faults
        self.http = http
        self.code = code
        self.rng = loop.rng(f"cells/{node}")

    async def start(self, plan: Plan) -> SimCell:
        await asyncio.sleep(self.rng.uniform(*START_S))
        if self.faults.fires(Fault.process_resource_exhaustion, "cells.start"):
            raise SandboxUnavailable("a cell cannot be started: Resource temporarily unavailable")
        return SimCell(self)

    async def close(self) -> None:
        return


def _broken(stderr: bytes) -> Left:
    return Left(code=KILLED, result=None, stdout=b"", stderr=stderr)
