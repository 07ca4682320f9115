"""A tool that is replaced, deleted and created again while agents call it, and packages that are installed for it,
while installers fail and the power is cut.

A call finishes on the code it began with, whatever becomes of the tool; the next one runs the new code. A call that
needs a set of packages while it is being installed waits for that one installation and gets its outcome, and nothing
runs with a set that is not whole.
"""

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.settings.settings import Settings
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.ports.cells import CellEnvironment
from kelpie.sim.ports.database import SimDatabase
from kelpie.sim.ports.packages import PLACE, SAID, SimPackages
from kelpie.sim.runs.machine import Machine
from kelpie.sim.scenarios.cell_setup import boot_with_cells
from kelpie.sim.scenarios.fixtures.clients import ScenarioClient
from kelpie.sim.scenarios.fixtures.kelpie_node import SETTINGS, RunningKelpie
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario, together
from kelpie.world.world import World

VERSIONS = 5
CALLS = 4
COLLEAGUES = 2
SETS = ("alpha", "beta")
WORK_S = (0.1, 4.0)
NAME = "versioned"
SOURCE = '''
def {name}(mark: str) -> str:
    """Says which it is.

    Args:
        mark (str): of the call
    """
    return "{version}"
'''
_VERSION = re.compile(r'return "(\d+)"')


@dataclass(slots=True)
class Version:
    """One version that a client asked for."""

    number: int
    asked_s: float
    known_s: float | None = None  # when it was acknowledged
    refused: bool = False


class ToolChanges(ServerScenario):
    """Two agents that call one tool, a client that replaces it, and others whose tools need the same packages."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.package_disk = machine.disk.package_disk
        self.versions: list[Version] = []
        self.called: dict[str, float] = {}  # when a call was asked for, by its mark
        self.ran: dict[str, tuple[int, float]] = {}  # which version it ran, and when it began
        self.finished: list[str] = []
        machine.world.code = self._code

    async def _code(self, inside: CellEnvironment) -> str:
        now, mark = self.machine.loop.time(), str(inside.arguments["mark"])
        found = _VERSION.search(inside.request["source"])
        assert found is not None
        if mark in self.ran:
            raise Broken("a call is run once", mark)
        self.ran[mark] = int(found[1]), now
        for mount in inside.mounts:
            if mount.source not in self.package_disk.whole:
                self.machine.loop.fail(Broken("nothing runs with half a set of packages", mount.source))
        await asyncio.sleep(self.machine.loop.rng(f"work/{mark}").uniform(*WORK_S))
        self.finished.append(mark)
        return f"{found[1]} {mark}"

    async def act(self) -> None:
        owner = self.client("owner")
        tool_id = ""
        while not tool_id:
            tool_id = await self._renew(owner, SETS[0])
        await self.make_agents(2, types=("letta_v1_agent",), tools=[NAME])
        clients = self.clients(2)
        colleagues = [self.client(f"colleague-{number}") for number in range(COLLEAGUES)]
        await together(
            (
                self._own(owner, tool_id),
                *(self._talk(client, number) for number, client in enumerate(clients)),
                *(self._register(client, number) for number, client in enumerate(colleagues)),
            )
        )

    async def _renew(self, owner: ScenarioClient, package: str) -> str:
        """Registers the next version; returns the tool's id, or None when it was refused or the outcome is unknown."""
        version = Version(len(self.versions), self.machine.loop.time())
        self.versions.append(version)
        source = SOURCE.format(name=NAME, version=version.number)
        answer = await owner.ask("PUT", "/v1/tools/", {"source_code": source, "pip_requirements": [{"name": package}]})
        if answer is not None and answer.status == 200:
            version.known_s = self.machine.loop.time()
            return answer.json()["id"]
        version.refused = answer is not None and answer.status == 400
        self._refusal_is_true(answer, version.asked_s, package)
        return ""

    async def _own(self, owner: ScenarioClient, tool_id: str) -> None:
        for _ in range(VERSIONS):
            await owner.pause(4.0)
            if owner.tosses(0.4):
                await owner.ask("DELETE", f"/v1/tools/{tool_id}")
            tool_id = await self._renew(owner, owner.picks(SETS)) or tool_id
            await self._attach(owner)
        while not (tool_id := await self._renew(owner, SETS[0])):
            pass
        await self._attach(owner)

    async def _attach(self, owner: ScenarioClient) -> None:
        """Attaches the tool to both agents, if there is one."""
        found = await owner.insist("GET", f"/v1/tools/?name={NAME}")
        for agent_id in self.agents if found else ():
            answer = await owner.ask("PATCH", f"/v1/agents/{agent_id}/tools/attach/{found[0]['id']}")
            if answer is not None and answer.status == 400:
                raise Broken("a tool is attached", f"{answer.body!r}")

    async def _talk(self, client: ScenarioClient, number: int) -> None:
        for turn in range(CALLS):
            await client.pause(3.0)
            mark = f"{number}-{turn}"
            self.called[mark] = self.machine.loop.time()
            await client.say(self.agents[number], f'call {NAME} {{"mark": "{mark}"}}')

    async def _register(self, client: ScenarioClient, number: int) -> None:
        for turn, package in enumerate(SETS):
            await client.pause(1.0)
            source = SOURCE.format(name=f"other_{number}_{turn}", version=0)
            asked_s = self.machine.loop.time()
            answer = await client.ask(
                "POST", "/v1/tools/", {"source_code": source, "pip_requirements": [{"name": package}]}
            )
            self._refusal_is_true(answer, asked_s, package)

    def _refusal_is_true(self, answer: Any, asked_s: float, package: str) -> None:
        """A call that was refused for packages was refused because an installation of that set failed meanwhile."""
        if answer is None or answer.status != 400:
            return
        failed = [name for at_s, name in self.package_disk.failed if at_s >= asked_s and package in name]
        if SAID not in answer.body.decode() or not failed:
            raise Broken("a failed installation is told as it was", f"{answer.body!r}, and failed were {failed}")

    def check(self) -> None:
        super().check()
        for mark, (number, began_s) in self.ran.items():
            version = self.versions[number]
            if version.refused:
                raise Broken("what was refused is not run", f"version {number} by {mark}")
            if version.asked_s > began_s:
                raise Broken("a call does not run what comes later", f"version {number} by {mark}")
        self._calls_run_what_is_current()
        self._results_are_of_the_code_that_ran()
        self._sets_are_installed_once()

    def _calls_run_what_is_current(self) -> None:
        for mark, (number, _) in self.ran.items():
            called_s = self.called[mark]
            known = [v.number for v in self.versions if v.known_s is not None and v.known_s < called_s]
            if known and number < max(known):
                raise Broken("the next call sees the new code", f"{mark} ran {number}, known was {max(known)}")

    def _results_are_of_the_code_that_ran(self) -> None:
        told = set[str]()
        for (returned,) in self.machine.disk.query("SELECT tool_returns FROM messages WHERE role = 'tool'"):
            for result in json.loads(returned):
                if result["name"] != NAME or not result["ok"]:
                    continue
                number, _, mark = str(result["text"]).partition(" ")
                told.add(mark)
                if self.ran.get(mark, (None,))[0] != int(number):
                    raise Broken("a call finishes on the code it began with", f"{mark}: {number}, ran {self.ran}")
        # A cell that reached its time-out gives no result, also if its code had finished.
        failing = (Fault.storage_write_fail, Fault.process_timeout)
        sound = self.machine.boots == 1 and not any(map(self.machine.faults.fired, failing))
        if sound and (lost := [mark for mark in self.finished if mark not in told]):
            raise Broken("a call finishes whatever becomes of its tool", f"{lost} of {self.ran}")

    def _sets_are_installed_once(self) -> None:
        """But for those that failed, and those that a power cut has ended."""
        failed = [name for _, name in self.package_disk.failed]
        for name in sorted(self.package_disk.whole):
            if self.package_disk.begun.count(name) != 1 + failed.count(name) + self.package_disk.unfinished.count(name):
                raise Broken("a set is installed once", f"{name}: {self.package_disk}")


async def boot_with_packages(world: World, settings: Settings) -> RunningKelpie:
    """With an installer whose packages outlive the node, as the disk does."""
    assert isinstance(world.database, SimDatabase)
    database = world.database
    return await boot_with_cells(
        world, settings, SimPackages(database.faults, database.node, database.disk.package_disk)
    )


RENEWALS = replace(
    scenario(
        "tools-made-anew",
        ToolChanges,
        faults=(
            Aim(Fault.process_crash, PLACE, rate=0.25),
            Aim(Fault.crash_before_write, PLACE, rate=0.1, times_max=2),
            Aim(Fault.crash_after_write, PLACE, rate=0.1, times_max=1),
            Aim(Fault.crash_after_write, "journal.result", rate=0.1, times_max=1),
            Aim(Fault.storage_write_fail, "database.commit", rate=0.01),
            Aim(Fault.process_timeout, "cells.run", rate=0.05),
        ),
        swarm=(Fault.storage_latency, Fault.network_delay, Fault.cpu_starvation, Fault.process_crash),
        settings=SETTINGS,
    ),
    boot=boot_with_packages,
)
