"""Packages of tools, ready to be mounted in cells: each set is installed once, and concurrent calls wait for it.

Organizations take turns for installations: those that take long do not keep another organization waiting.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages, needed
from kelpie.core.tools.tools import Tool
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.observe import logs
from kelpie.sandbox.port import Mount
from kelpie.tools.custom.definition import is_python
from kelpie.world.packages.programs import NODE_PACKAGES, PYTHON_PACKAGES
from kelpie.world.packages.store import Packages

# Sets of packages that are installed at once, and those of one organization that wait together with them.
INSTALLS_AT_ONCE, INSTALLS_MAX = 2, 64
LIMITS = SlotLimits(
    "package_installs_full", "package installation", INSTALLS_AT_ONCE, waiting_max=INSTALLS_MAX, wait_s=3600.0
)

_log = logs.get("environments")


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """One version of a package, with the hash of its archive as npm writes it."""

    name: str
    version: str
    integrity: str

    @property
    def line(self) -> str:
        return f"{self.name}@{self.version}"


# For a Node that does not read TypeScript by itself.
TYPE_STRIPPER = NpmPackage(
    "amaro",
    "1.2.1",
    "sha512-RXNB1/mbpbpwr4mVlQgYZVdY4CHl7rFExwov+XOTWfghpsM1s2sD/5u4oTQkKL4Pt0BGNIExSVjRcLMjcytIDQ==",
)


@dataclass(frozen=True, slots=True)
class InstalledSet:
    """An installed set of packages: its place in a cell, and its programs."""

    packages: Packages
    index: Index
    place: str

    @property
    def mounts(self) -> tuple[Mount, ...]:
        if self.index is Index.pip:
            return (Mount(self.place, PYTHON_PACKAGES),)
        return (Mount(f"{self.place}/node_modules", NODE_PACKAGES),)

    async def command(self, package: str, program: str | None) -> list[str]:
        """The command, in a cell, of a program of the set. Raises ToolError if it has none of this name."""
        return await self.packages.command(self.index, self.place, package, program)


class Environments:
    def __init__(self, packages: Packages | None, share: OrganizationShare | None = None) -> None:
        self._packages = packages  # None: this server installs nothing
        self._under_way: dict[RequiredPackages, asyncio.Task[str]] = {}
        self._waiting: Counter[str] = Counter()  # sets under way, by the organization that asked for them first
        self._slots = FairSlots(LIMITS, share)
        self._in_use: Counter[str] = Counter()

    @property
    def installs(self) -> bool:
        """True if packages can be installed on this server."""
        return self._packages is not None

    @asynccontextmanager
    async def of(self, tool: Tool) -> AsyncGenerator[tuple[Mount, ...]]:
        """The packages that a tool needs in its cell, kept as long as the block runs. Raises ToolError when they cannot
        be installed.
        """
        wanted = await self._needed(tool)
        if not wanted.lines:
            yield ()
            return
        async with self.held(wanted, Consumer(tool.organization_id)) as installed:
            yield installed.mounts

    @asynccontextmanager
    async def held(self, wanted: RequiredPackages, consumer: Consumer) -> AsyncGenerator["InstalledSet"]:
        """A set of packages, installed once, and kept as long as the block runs. Raises ToolError."""
        place = await self._installed(wanted, consumer)
        assert self._packages is not None, "nothing is installed without it"
        self._in_use[place] += 1
        try:
            yield InstalledSet(self._packages, wanted.index, place)
        finally:
            self._in_use[place] -= 1
            if not self._in_use[place]:
                del self._in_use[place]

    async def close(self) -> None:
        """Cancels running installations."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _needed(self, tool: Tool) -> RequiredPackages:
        if is_python(tool.source_type):
            return needed(Index.pip, tool.pip_requirements)
        wanted = needed(Index.npm, tool.npm_requirements)
        if tool.source_type != "typescript" or await self._reads_types():
            return wanted
        lines = tuple(sorted({*wanted.lines, TYPE_STRIPPER.line}))
        return replace(wanted, lines=lines, integrity=((TYPE_STRIPPER.line, TYPE_STRIPPER.integrity),))

    async def _reads_types(self) -> bool:
        """True if Node needs no help with TypeScript, or none that Kelpie could give it."""
        return self._packages is None or await self._packages.node_reads_types() is not False

    async def _installed(self, wanted: RequiredPackages, consumer: Consumer) -> str:
        if self._packages is None:
            names = ", ".join(wanted.lines)
            raise ToolError(
                f"{names} cannot be installed: package installation is switched off on this server (sandbox.packages)"
            )
        found = self._packages.find(wanted)
        if found is not None:
            return found
        task = self._under_way.get(wanted)
        if task is None:
            if self._waiting[consumer.organization] >= INSTALLS_MAX:
                raise ToolError(f"{INSTALLS_MAX} package installations are already waiting; try again later")
            task = asyncio.create_task(self._install(self._packages, wanted, consumer))
            self._under_way[wanted] = task
            self._waiting[consumer.organization] += 1
            task.add_done_callback(partial(self._done, wanted, consumer))
        return await asyncio.shield(task)  # who goes away does not take it from the others

    def _done(self, wanted: RequiredPackages, consumer: Consumer, task: asyncio.Task[str]) -> None:
        self._under_way.pop(wanted, None)
        self._waiting[consumer.organization] -= 1
        if not self._waiting[consumer.organization]:
            del self._waiting[consumer.organization]
        if not task.cancelled():
            task.exception()  # raised in the waiting callers; there may be none left

    async def _install(self, packages: Packages, wanted: RequiredPackages, consumer: Consumer) -> str:
        async with self._slots.slot(consumer):
            _log.info(
                "package_install_started", "Installing packages", index=wanted.index.value, packages=list(wanted.lines)
            )
            try:
                return await packages.install(wanted, self._in_use)  # as they are when it is done
            except ToolError as error:
                _log.warning(
                    "package_install_failed",
                    "Packages could not be installed",
                    index=wanted.index.value,
                    error=str(error),
                )
                raise
