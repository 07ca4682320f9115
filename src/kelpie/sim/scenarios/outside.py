"""A tool whose effect lies outside: a service on the simulated internet that remembers what it was made to do.

Nothing of ours can undo its effects, so they prove that a call is never run twice; the power may fail at both sides.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from kelpie.core.errors import ToolError
from kelpie.core.tools import Tool
from kelpie.sim.cells import CPU_US, MEMORY_BYTES
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.http import Answer, Asked
from kelpie.sim.loop import SimLoop
from kelpie.tools.port import CallContext, Outcome
from kelpie.world.world import World

HOST = "outside.sim"
PLACE = "outside.effect"
TIMEOUT_S = 20.0
WORK_S = (0.01, 0.3)
BEGUN = "x-begun"  # a header: when the call began in the server, in the time of the simulation

SOURCE = '''
def outside(mark: str) -> str:
    """Does something in the world.

    Args:
        mark (str): what to do
    """
    return mark
'''


class Outside:
    """The service. `effects` counts how often each mark was carried out."""

    def __init__(self, loop: SimLoop, faults: Faults, crash: Callable[[], None]) -> None:
        self.effects: Counter[str] = Counter()
        self._faults = faults
        self._crash = crash
        self._rng = loop.rng("outside")

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        mark = json.loads(asked.body)["mark"]
        await asyncio.sleep(self._rng.uniform(*WORK_S))
        if self._faults.fires(Fault.crash_before_write, PLACE, mark):
            self._crash()
            return
        self.effects[mark] += 1
        if self._faults.fires(Fault.crash_after_write, PLACE, mark):
            self._crash()
            return
        await answer.start(200, {"content-type": "application/json"})
        await answer.send(json.dumps({"done": mark}).encode())


class OutsideTool:
    """Our side of it: the `ExternalTool` of one life of a node."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError when the service does not answer."""
        transport, begun = self._world.http.transport(), {BEGUN: repr(asyncio.get_running_loop().time())}
        try:
            async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S) as client:
                response = await client.post(f"http://{HOST}/do", json=dict(arguments), headers=begun)
                response.raise_for_status()
        except httpx.HTTPError as error:
            raise ToolError(f"The outside could not be reached: {type(error).__name__}.") from error
        return Outcome(f"done {response.json()['done']}", cpu_us=CPU_US, memory_peak_bytes=MEMORY_BYTES)
