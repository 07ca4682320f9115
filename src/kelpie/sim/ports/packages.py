"""The `Packages` port in the simulation: sets of packages on a disk that outlives the node, and an installer that is
slow, is killed, finds nothing, or is cut off by a power cut in the middle.

A set is begun under another name and gets its own when it is whole, as on a real disk.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, RequiredPackages
from kelpie.sim.faults import Fault, Faults
from kelpie.sim.loop.loop import running
from kelpie.sim.loop.node import Node

INSTALL_S = (0.5, 8.0)
PLACE = "packages.install"
SAID = "No matching distribution found"


@dataclass(slots=True)
class PackageDisk:
    """The package sets on the disk, and the record of installations: one for a run."""

    whole: set[str] = field(default_factory=set[str])
    unfinished: list[str] = field(default_factory=list[str])
    begun: list[str] = field(default_factory=list[str])
    failed: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])  # and when


class SimPackages:
    """For one life of a node."""

    def __init__(self, faults: Faults, node: Node, package_disk: PackageDisk) -> None:
        self._loop = loop = running()
        self._faults = faults
        self._node = node
        self._package_disk = package_disk
        self._rng = loop.rng(f"packages/{node}")

    def find(self, wanted: RequiredPackages) -> str | None:
        name = path_of(wanted)
        return name if name in self._package_disk.whole else None

    async def install(self, wanted: RequiredPackages, in_use: Iterable[str]) -> str:
        name, package_disk = path_of(wanted), self._package_disk
        package_disk.begun.append(name)
        package_disk.unfinished.append(name)
        await asyncio.sleep(self._rng.uniform(*INSTALL_S))
        if self._faults.fires(Fault.crash_before_write, PLACE):
            self._node.crash()
            await asyncio.sleep(0)  # does not return
        if self._faults.fires(Fault.process_crash, PLACE):
            package_disk.unfinished.remove(name)
            package_disk.failed.append((self._loop.time(), name))
            raise ToolError(f"{wanted.index} could not install {', '.join(wanted.lines)}: {SAID}")
        package_disk.unfinished.remove(name)
        package_disk.whole.add(name)
        if self._faults.fires(Fault.crash_after_write, PLACE):
            self._node.crash()
            await asyncio.sleep(0)
        return name

    async def command(self, index: Index, place: str, package: str, program: str | None) -> list[str]:
        return [program or package]

    async def node_reads_types(self) -> bool | None:
        return True


def path_of(wanted: RequiredPackages) -> str:
    """The path of a set."""
    return f"/packages/{'-'.join(wanted.lines)}"
