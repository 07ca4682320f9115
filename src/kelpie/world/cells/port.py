"""Port to cells: sandbox instances, each of which runs one program once.

A cell is started before its job is known, and waits; it gets one order, and is killed afterwards whatever the outcome.
Nothing is ever run in a cell twice. An order is run to its end, or is a program that stays and talks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kelpie.core.tools.confinement import MEGABYTE, Confinement, Mount, Runner

RESULT_BYTES_MAX = 16 * MEGABYTE
FLOOD_FACTOR = 16  # output past this many times its bound is no longer thrown away: the order is ended


class ChannelClosed(Exception):
    """The program has ended, or its cell was removed."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Everything needed to build a cell; cells of the same plan are interchangeable."""

    runner: Runner
    mounts: tuple[Mount, ...] = ()
    scratch_bytes: int = 64 * MEGABYTE
    file_bytes_max: int = 256 * MEGABYTE  # the largest file in a writable mount; the mount's owner bounds the whole


@dataclass(frozen=True, slots=True)
class Order:
    """The one job of a cell."""

    request: bytes
    confinement: Confinement
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class OrderOutput:
    """Output of an order so far. All of it is untrusted bytes."""

    code: int | None  # None: it did not end by itself
    result: bytes | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    flooded: bool = False
    out_of_memory: bool = False
    throttled: bool = False  # it wanted more of the processor than its share
    cpu_us: int = 0  # of all its processes together; 0 without a control group
    memory_peak_bytes: int = 0


class Listener(Protocol):
    """A listening socket on a cell's own loopback; in the simulation, a stand-in for one."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CellSockets:
    """Listening sockets on the cell's own loopback that only the server holds: the server answers every connection to
    them."""

    api: Listener
    egress: Listener

    def close(self) -> None:
        self.api.close()
        self.egress.close()


class Channel(Protocol):
    """Standard input and output of a program in a cell, as one stream of bytes in each direction."""

    async def send(self, data: bytes) -> None:
        """Sends all of it. Raises ChannelClosed."""
        ...

    async def receive(self) -> bytes:
        """What has arrived; nothing when the program has ended."""
        ...


class Cell(Protocol):
    @property
    def sockets(self) -> CellSockets | None:
        """Its connections to the server; the sender of its order owns and closes them. None without isolation."""
        ...

    @property
    def alive(self) -> bool:
        """True if it still waits for its order."""
        ...

    async def run(self, order: Order) -> None:
        """Sends its one order and waits for the result, the end of the program, or too much output."""
        ...

    async def connect(self, order: Order) -> Channel:
        """Sends its one order, whose command is to stay and talk, and returns its standard input and output."""
        ...

    def output(self) -> OrderOutput:
        """The output of the order so far; the end of standard error, for a command that talks."""
        ...

    async def kill(self) -> None:
        """Ends every process in it and removes the cell; returns when nothing of it remains. May be called twice."""
        ...


class Cells(Protocol):
    @property
    def lacking(self) -> str | None:
        """Reason why no code can be isolated here, as far as it was tried."""
        ...

    @property
    def unbounded(self) -> str | None:
        """Reason why the limits of a call apply to each of its processes only, as far as it was tried."""
        ...

    async def start(self, plan: CellPlan) -> Cell:
        """A cell that waits for its order. Raises SandboxUnavailable with what is missing."""
        ...

    async def close(self) -> None:
        """Removes what was set up for all cells."""
        ...
