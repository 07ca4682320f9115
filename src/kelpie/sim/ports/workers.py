"""The `Workers` port in the simulation: programs run in the simulated process, after a delay in virtual time.

A fault ends the worker instead, as a source that exceeds its limits does, or the kernel of a machine without memory.
"""

import asyncio
import importlib
from collections.abc import Callable

from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram

PLACE = "workers.answer"

_ENDS = (
    (Fault.process_timeout, WorkerFault.time),
    (Fault.out_of_memory, WorkerFault.memory),
    (Fault.process_crash, WorkerFault.crash),
)


class SimWorkers:
    """The worker processes of one life of a node. `delay_s` returns the range that a delay is drawn from."""

    def __init__(self, loop: SimLoop, faults: Faults, node: Node, delay_s: Callable[[], tuple[float, float]]) -> None:
        self._rng = loop.rng(f"workers/{node}")
        self._faults = faults
        self._delay_s = delay_s

    async def ask(self, program: WorkerProgram, request: bytes | Upload, owner: str) -> bytes:
        """The answer of the program. Raises WorkerFailed."""
        if (delay_s := self._delay_s())[1]:
            await asyncio.sleep(self._rng.uniform(*delay_s))
        for fault, reason in _ENDS:
            if self._faults.fires(fault, PLACE):
                raise WorkerFailed(reason)
        answer: Callable[[bytes], bytes] = importlib.import_module(program.module).answer
        return answer(request if isinstance(request, bytes) else request.head + request.content)

    async def close(self) -> None:
        return
