"""Code of tools in cells: `> cells` among the first steps boots a server whose custom tools run in simulated cells, and
`> code NAME JSON` says what the function or command NAME does there from now on.

It `returns` a value (its arguments if nothing is said), or `raises` a text. Before that it may `ask` Kelpie's API:
`[["GET", "/v1/agents/agent-1"]]`, and with `after` it takes so many seconds. `left` is what a cell has to show in place
of an answer: {"code": 3, "stdout": "...", "stderr": "...", "result": "...", "truncated": true, ...}. Of a list each is
used once, and the last stays. What runs is recorded with its arguments, the length of its source, and its variables,
packages and limits as far as they are not usual, and with the number of those that run beside it.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from kelpie.core.settings.settings import Settings
from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT
from kelpie.sim.ports.cells import CellBroke, CellEnvironment
from kelpie.sim.ports.database import SimDatabase
from kelpie.sim.ports.packages import SimPackages
from kelpie.sim.scenarios.cell_setup import boot_with_cells
from kelpie.sim.scenarios.fixtures.kelpie_node import RunningKelpie
from kelpie.world.cells.port import OrderOutput
from kelpie.world.world import World
from tests.snapshots.text import Text

_USUAL = ("LETTA_API_KEY", "LETTA_BASE_URL", "LETTA_PROJECT_ID")


async def boot(world: World, settings: Settings) -> RunningKelpie:
    """Starts a server whose tools run in cells, with packages that can be installed."""
    database = world.database
    assert isinstance(database, SimDatabase)
    return await boot_with_cells(
        world, settings, SimPackages(database.faults, database.node, database.disk.package_disk)
    )


class CellCode:
    """`hear` gets each line of what happened."""

    def __init__(self, hear: Callable[[str], None], text: Text) -> None:
        self._hear = hear
        self._text = text
        self._told: dict[str, list[dict[str, Any]]] = {}
        self._running = 0

    def tell(self, name: str, told: Any) -> None:
        """What a function does from now on."""
        self._told[name] = list(told) if isinstance(told, list) else [told]

    async def __call__(self, inside: CellEnvironment) -> Any:
        """Raises OSError and CellBroke, as it is told."""
        request = inside.request
        name = str(request.get("function") or "code")
        self._record(name, inside)
        self._running += 1
        try:
            return await self._play(name, inside)
        finally:
            self._running -= 1

    async def _play(self, name: str, inside: CellEnvironment) -> Any:
        answers = self._told.get(name, [{}])
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        for method, path, *body in told.get("ask", ()):
            answer = await inside.ask(method, path, *body)
            line = self._text.line([f"{method} {path}", answer.status, answer.json()])
            self._hear(f"  asked {line}")
        try:
            await asyncio.sleep(told.get("after", 0.0))
        except asyncio.CancelledError:
            self._hear(f"the cell of {name} was ended")
            raise
        if "raises" in told:
            raise OSError(told["raises"])
        if "left" in told:
            raise CellBroke(_left(told["left"]))
        return told.get("returns", dict(inside.arguments))

    def _record(self, name: str, inside: CellEnvironment) -> None:
        request = inside.request
        known = ("source", "function", "arguments")
        more = {key: value for key, value in request.items() if key not in known and value}
        if more.get("order") == list(inside.arguments):
            del more["order"]
        env = {key: value for key, value in inside.env.items() if key not in _USUAL}
        limits = {
            field.name: value
            for field in fields(inside.confinement)
            if (value := getattr(inside.confinement, field.name)) != getattr(DEFAULT_CONFINEMENT, field.name)
        }
        beside = f", beside {self._running}" if self._running else ""
        source = f", of {len(request['source'])} characters" if "source" in request else ""
        self._hear(f"a cell runs {name} {self._text.line(request.get('arguments'))}{source}{beside}")
        for what, value in (("env", env), ("limits", limits), ("mounts", _mounts(inside)), ("with", more)):
            if value:
                self._hear(f"  {what} {self._text.line(value)}")


def _mounts(inside: CellEnvironment) -> list[str]:
    return [f"{mount.source} at {mount.target}{' to write' if mount.writable else ''}" for mount in inside.mounts]


def _left(told: Mapping[str, Any]) -> OrderOutput:
    streams = {name: str(told.get(name, "")).encode() for name in ("stdout", "stderr")}
    result = told.get("result")
    others = {name: told[name] for name in ("truncated", "flooded", "out_of_memory") if name in told}
    written = None if result is None else (result if isinstance(result, str) else json.dumps(result)).encode()
    return OrderOutput(code=told.get("code"), result=written, **streams, **others)
