"""Cells: places with walls around them in which one program of somebody else runs once.

A cell is started before anybody knows what will run in it and waits; it is given one order, and is killed afterwards
whatever became of it. Nothing is ever run in a cell twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kelpie.core.tools.confinement import MEGABYTE, Confinement, Mount, Runner

RESULT_BYTES_MAX = 16 * MEGABYTE
FLOOD_FACTOR = 16  # output past this many times its bound is no longer thrown away: the order is ended


@dataclass(frozen=True, slots=True)
class CellPlan:
    """What has to be known to build a cell; cells of one plan can stand in for each other."""

    runner: Runner
    mounts: tuple[Mount, ...] = ()
    scratch_bytes: int = 64 * MEGABYTE


@dataclass(frozen=True, slots=True)
class Order:
    """What a cell is to do."""

    request: bytes
    confinement: Confinement
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class OrderOutput:
    """What an order has left so far. Nothing of it is more than bytes from somebody else."""

    code: int | None  # None: it did not end by itself
    result: bytes | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    flooded: bool = False
    out_of_memory: bool = False
    throttled: bool = False  # it wanted more of the processor than its share
    cpu_us: int = 0  # of all its processes together; 0 where nobody counts
    memory_peak_bytes: int = 0


class Listener(Protocol):
    """A listening socket of a cell's own loopback; in the simulation, something that stands for one."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CellSockets:
    """Listening sockets of the cell's own loopback that only we hold: who connects to them inside talks to us."""

    api: Listener
    egress: Listener

    def close(self) -> None:
        self.api.close()
        self.egress.close()


class Cell(Protocol):
    @property
    def sockets(self) -> CellSockets | None:
        """Its ways to us, which belong to who gives it its order and shuts them; None where there are no walls."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it still waits for its order."""
        ...

    async def run(self, order: Order) -> None:
        """Gives it its one order and waits until the result is there, or the program ended, or flooded us."""
        ...

    def output(self) -> OrderOutput:
        """What there is of the order by now."""
        ...

    async def kill(self) -> None:
        """Ends every process in it and takes it down; returns when nothing of it is left. May be called twice."""
        ...


class Cells(Protocol):
    @property
    def lacking(self) -> str | None:
        """Why no code can be held here, as far as it was tried."""
        ...

    @property
    def unbounded(self) -> str | None:
        """Why the limits of a call hold for each of its processes only, as far as it was tried."""
        ...

    async def start(self, plan: CellPlan) -> Cell:
        """A cell that waits for its order. Raises SandboxUnavailable with what is missing."""
        ...

    async def close(self) -> None:
        """Takes back what was set up for all cells."""
        ...
