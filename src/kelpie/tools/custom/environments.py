"""Packages of tools, ready to be mounted in cells: each set is installed once, and concurrent calls wait for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages, needed
from kelpie.core.tools.tools import Tool
from kelpie.observe import logs
from kelpie.sandbox.port import Mount
from kelpie.tools.custom.definition import is_python
from kelpie.world.packages.store import Packages

INSTALLS_AT_ONCE, INSTALLS_MAX = 2, 64  # sets of packages that are installed at once, and that wait together with them
PYTHON_PACKAGES = "/packages"
NODE_PACKAGES = "/node_modules"  # where Node looks for the packages of any file

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


class Environments:
    def __init__(self, packages: Packages | None) -> None:
        self._packages = packages  # None: this server installs nothing
        self._under_way: dict[RequiredPackages, asyncio.Task[str]] = {}
        self._places = asyncio.Semaphore(INSTALLS_AT_ONCE)
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
        place = await self._installed(wanted)
        self._in_use[place] += 1
        try:
            if wanted.index is Index.pip:
                yield (Mount(place, PYTHON_PACKAGES),)
            else:
                yield (Mount(f"{place}/node_modules", NODE_PACKAGES),)
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

    async def _installed(self, wanted: RequiredPackages) -> str:
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
            if len(self._under_way) >= INSTALLS_MAX:
                raise ToolError(f"{INSTALLS_MAX} package installations are already waiting; try again later")
            task = asyncio.create_task(self._install(self._packages, wanted))
            self._under_way[wanted] = task
            task.add_done_callback(partial(self._done, wanted))
        return await asyncio.shield(task)  # who goes away does not take it from the others

    def _done(self, wanted: RequiredPackages, task: asyncio.Task[str]) -> None:
        self._under_way.pop(wanted, None)
        if not task.cancelled():
            task.exception()  # raised in the waiting callers; there may be none left

    async def _install(self, packages: Packages, wanted: RequiredPackages) -> str:
        async with self._places:
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
