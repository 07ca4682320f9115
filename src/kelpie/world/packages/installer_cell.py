"""Installation of a set of packages in a cell, in which only the new directory of the set can be written to.

The cell sees the programs of this machine, the installer's code and what its settings name. Its network is Kelpie's
proxy. Memory, processes, processor, time, output and disk are bounded.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Protocol

from kelpie.core.errors import SandboxUnavailable, ToolError
from kelpie.core.tools.confinement import MEGABYTE, Confinement, Mount, Runner
from kelpie.core.tools.package_requirements import RequiredPackages
from kelpie.world.cells.mounts import INSIDE, interpreter
from kelpie.world.cells.port import Cell, CellPlan, Cells, Order, OrderOutput
from kelpie.world.files import untrusted_tree
from kelpie.world.lazy_imports import lazily
from kelpie.world.packages.installer_errors import readable
from kelpie.world.packages.installer_network import installer_network
from kelpie.world.packages.installers import PROXY_ENV, SET, TEMPORARY, InstallerProgram, installer_of, program
from kelpie.world.processes.processes import Processes

with lazily:
    from kelpie.world.packages import installer_settings as _installer_settings

INSTALL_S = 300.0
LOOK_S = 0.5
SET_BYTES_MAX = 1024**3
SET_ENTRIES_MAX = 200_000
FREE_BYTES_MIN = 1024 * MEGABYTE  # of the disk: an installation that has taken some is ended when less is left
FREE_BYTES_TAKEN = 32 * MEGABYTE
LIMITS = Confinement(
    wall_s=INSTALL_S, memory_bytes=1024 * MEGABYTE, cpu_share=2.0, processes=128, output_bytes=256 * 1024
)
SCRATCH_BYTES = 64 * MEGABYTE

DISK_FULL = f"packages cannot be installed: the server's disk has less than {FREE_BYTES_MIN // MEGABYTE} MB left"
REFUSED = "\nThe server refused a download that a package or the index asked for: {} See docs/tools.md."


class PackageInstaller(Protocol):
    async def install(self, wanted: RequiredPackages, into: Path) -> None:
        """Installs a set into an empty directory; nothing of the installation runs any more when it returns.

        Raises ToolError with a text for clients.
        """
        ...


class CellInstaller:
    """Installs in cells of this machine. `closed` is the server's data directory, which no setting can open; with
    `private`, a package may be fetched from any address."""

    def __init__(self, cells: Cells, processes: Processes, closed: Path, *, private: bool = False) -> None:
        self._cells = cells
        self._processes = processes
        self._closed = closed
        self._private = private

    async def install(self, wanted: RequiredPackages, into: Path) -> None:
        names = ", ".join(wanted.lines)
        try:
            installer = installer_of(wanted.index)
            settings = await _installer_settings.read_settings(self._processes, installer, os.environ, self._closed)
            (into / TEMPORARY).mkdir(mode=0o700)
            cell, order = await self._started(wanted, program(installer, wanted), settings, into)
            output, refused = await self._run(cell, order, settings, into)
        except TimeoutError:  # before OSError, of which it is one
            raise ToolError(
                f"installing {names} with {wanted.index} took longer than {INSTALL_S:g} s and was stopped"
            ) from None
        except OSError as error:
            raise ToolError(
                f"{names} could not be installed with {wanted.index}: {error.strerror or 'I/O error'}"
            ) from error
        except SandboxUnavailable as error:
            raise ToolError(
                f"{names} cannot be installed, because packages are installed in a sandbox: {error}"
            ) from error
        _check(output, f"{installer} could not install {names}", settings, refused)

    async def _started(
        self,
        wanted: RequiredPackages,
        program: InstallerProgram,
        settings: _installer_settings.InstallerSettings,
        into: Path,
    ) -> tuple[Cell, Order]:
        """A cell and its order. Raises SandboxUnavailable."""
        shown = tuple(Mount(each, each) for each in settings.shown)
        mounts = (Mount(str(into), SET, writable=True), *program.mounts, *shown)
        cell = await self._cells.start(CellPlan(Runner.command, mounts, SCRATCH_BYTES, file_bytes_max=SET_BYTES_MAX))
        told = {
            "files": settings.files,
            "commands": program.commands,
            "removed": program.removed,
            "pinned": wanted.integrity,
            "directory": SET,
        }
        request = {
            "argv": [interpreter(), "-I", "-S", f"{INSIDE}/package_installer.py"],
            "cwd": SET,
            "stdin": json.dumps(told),
        }
        env = {**settings.env, **PROXY_ENV, "TMPDIR": f"{SET}/{TEMPORARY}"}
        return cell, Order(json.dumps(request).encode(), LIMITS, env)

    async def _run(
        self, cell: Cell, order: Order, settings: _installer_settings.InstallerSettings, into: Path
    ) -> tuple[OrderOutput, str | None]:
        """The output of an order, and the last refusal of the proxy. Raises ToolError, OSError, TimeoutError."""
        try:
            assert cell.sockets is not None, "without isolation a cell has no mounts"
            async with installer_network(cell.sockets, settings, private=self._private) as proxy:
                async with asyncio.timeout(INSTALL_S):
                    await _watched(cell, order, into)
                return cell.output(), proxy.refused
        finally:
            await cell.kill()
            if cell.sockets is not None:
                cell.sockets.close()


async def _watched(cell: Cell, order: Order, into: Path) -> None:
    """Runs the order while the directory stays within its limits. Raises ToolError, OSError."""
    running = asyncio.ensure_future(cell.run(order))
    try:
        while not running.done():
            await asyncio.wait((running,), timeout=LOOK_S)
            size, entries = await asyncio.to_thread(untrusted_tree.measure, str(into), SET_ENTRIES_MAX)
            if size > 2 * SET_BYTES_MAX or entries > SET_ENTRIES_MAX:  # packed and unpacked
                raise ToolError(too_large(size))
            disk = os.statvfs(into)
            if size > FREE_BYTES_TAKEN and disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
                raise ToolError(DISK_FULL)
        running.result()
    finally:
        running.cancel()
        await asyncio.wait((running,))


def _check(
    output: OrderOutput, failed: str, settings: _installer_settings.InstallerSettings, refused: str | None
) -> None:
    """Raises ToolError with the installer's message, and the refused requests."""
    if output.code == 0:
        return
    if output.out_of_memory:
        why = f"it needs more than {LIMITS.memory_bytes // MEGABYTE} MB of memory"
    elif output.flooded:
        why = "it writes too much output"
    else:
        why = readable(output.stderr or output.stdout, settings.secrets) or "the installer was ended"
    raise ToolError(f"{failed}: {why}{REFUSED.format(refused) if refused else ''}")


def too_large(size: int) -> str:
    return (
        f"the packages are too large ({size // MEGABYTE} MB found); a set may have at most "
        f"{SET_BYTES_MAX // MEGABYTE} MB and {SET_ENTRIES_MAX} files"
    )
