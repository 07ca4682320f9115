"""Code of tools in cells that break in every way they can, while the power is cut around them.

A sandbox with two places and a short queue is used by more agents than it has room for. Whatever becomes of a cell, the
call has one result and its effect is there at most once; and afterwards as much runs at once as before.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from kelpie.core.confinement import Confinement
from kelpie.core.errors import ToolError
from kelpie.core.settings import Settings
from kelpie.core.tools import Tool
from kelpie.sandbox.port import Ended, How, Job, Runner
from kelpie.sim.cells import Inside
from kelpie.sim.errors import Broken
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenarios.house import SETTINGS, RunningKelpie, boot
from kelpie.sim.scenarios.outside import HOST, TIMEOUT_S
from kelpie.sim.scenarios.people import Person
from kelpie.sim.scenarios.play import Play, scenario, together
from kelpie.sim.stage import Stage
from kelpie.tools.port import CallContext, Outcome
from kelpie.tools.workbench import Workbench
from kelpie.world.packages import Packages
from kelpie.world.world import World

AGENTS = 4
MESSAGES = 3
PLACES = 2
WAITING = 1
CONFINEMENT = Confinement(wall_s=30.0)


async def code(inside: Inside) -> str:
    """What the tool's code does: it makes the outside do something. Raises OSError when that does not answer."""
    transport = inside.http.transport()
    try:
        async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S) as client:
            response = await client.post(f"http://{HOST}/do", json=dict(inside.arguments))
            response.raise_for_status()
    except httpx.HTTPError as error:
        raise ConnectionError(type(error).__name__) from error
    return f"done {response.json()['done']}"


class Benched:
    """The `ExternalTool` of one life of a node: its workbench, which is made after it."""

    def __init__(self) -> None:
        self.workbench: Workbench | None = None

    async def __call__(self, tool: Tool, call: CallContext, arguments: Mapping[str, Any]) -> Outcome:
        """Raises ToolError when no job was made of it."""
        assert self.workbench is not None, "the workbench comes first"
        return await self.workbench(tool, call, arguments)


def job(arguments: Mapping[str, Any]) -> Job:
    request = {"source": "", "function": "outside", "arguments": dict(arguments)}
    return Job(Runner.python, json.dumps(request).encode(), confinement=CONFINEMENT)


def _value(ended: Ended) -> str:
    if ended.how is not How.finished or ended.result is None:
        raise ToolError(f"The code ended: {ended.how}, code {ended.code}.")
    told = json.loads(ended.result)
    if not told["ok"]:
        raise ToolError(told["error"])
    return told["value"]


async def boot_with_cells(world: World, settings: Settings, packages: Packages | None = None) -> RunningKelpie:
    tool = Benched()
    running = await boot(world, settings, tool, packages)
    tool.workbench = running.kelpie.workbench
    return running


class Sandboxed(Play):
    """Four agents whose tools want a place at once, where there are two."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        stage.world.code = code

    async def act(self) -> None:
        await self.register_outside()
        await self.make_agents(AGENTS, tools=["outside"])
        await together(self._talk(person, number) for number, person in enumerate(self.people(AGENTS)))

    async def _talk(self, person: Person, number: int) -> None:
        for _ in range(MESSAGES):
            await person.pause()
            both = 'call outside {"mark": "{token}-a"} & call outside {"mark": "{token}-b"}'
            await person.say(self.agents[number], both, stream=person.tosses(0.5))

    async def settle(self) -> None:
        await super().settle()
        running = self.stage.running
        assert isinstance(running, RunningKelpie) and running.kelpie.sandbox is not None
        await no_place_is_lost(running.kelpie.sandbox, PLACES)


async def no_place_is_lost(sandbox: Any, places: int) -> None:
    """As many jobs as there are places run at once, and afterwards nothing runs or waits."""
    marks = [f"last-{number}" for number in range(places)]
    try:
        async with asyncio.timeout(CONFINEMENT.wall_s):
            ended = await asyncio.gather(*(sandbox.run(job({"mark": mark})) for mark in marks))
    except (TimeoutError, ToolError) as error:
        raise Broken("no place of the sandbox is lost", f"{sandbox.counts()}: {type(error).__name__} {error}") from None
    if [_value(each) for each in ended] != [f"done {mark}" for mark in marks]:
        raise Broken("the sandbox works afterwards", str(ended))
    await asyncio.sleep(1)
    if any(sandbox.counts()[name] for name in ("running", "ending", "waiting", "starting")):
        raise Broken("nothing of a job is left", str(sandbox.counts()))


SANDBOXED = replace(
    scenario(
        "tools-in-cells",
        Sandboxed,
        faults=(
            Aim(Fault.process_crash, "cells.waiting", rate=0.1),
            Aim(Fault.process_crash, "cells.before", rate=0.1),
            Aim(Fault.process_crash, "cells.after", rate=0.1),
            Aim(Fault.process_timeout, "cells.run", rate=0.1),
            Aim(Fault.process_resource_exhaustion, "cells.start", rate=0.1),
            Aim(Fault.out_of_memory, "cells.run", rate=0.1),
            Aim(Fault.crash_before_write, "outside.effect", rate=0.08, times_max=1),
            Aim(Fault.crash_after_write, "outside.effect", rate=0.08, times_max=1),
        ),
        swarm=(Fault.crash_after_write, Fault.storage_latency, Fault.network_delay, Fault.cpu_starvation),
        settings=replace(SETTINGS, sandbox_cells_max=PLACES, sandbox_waiting_max=WAITING, sandbox_warm_max=2),
    ),
    boot=boot_with_cells,
)
