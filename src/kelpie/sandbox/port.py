"""Port to the sandbox for tools: it runs one job in a cell of its own, and nothing of the cell remains afterwards.

A job is data. Source and arguments reach the runner inside the cell as JSON, its result comes back as JSON; nothing is
ever turned into code on the way, and all output is treated as untrusted bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kelpie.core.access.consumers import SERVER, Consumer
from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT, Confinement, Mount, Runner

__all__ = ["JobEnding", "JobResult", "Mount", "Runner", "Sandbox", "SandboxJob", "SandboxProcess", "UsageMeter"]


class JobEnding(StrEnum):
    """The way a job ended."""

    finished = "finished"  # by itself, whatever its exit code
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    too_much_output = "too_much_output"
    crashed = "crashed"  # the cell broke under it


@dataclass(slots=True)
class UsageMeter:
    """Resources that a cancelled job had used when it was ended."""

    cpu_us: int = 0
    memory_peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxJob:
    runner: Runner
    request: bytes  # JSON
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[Mount, ...] = ()
    confinement: Confinement = DEFAULT_CONFINEMENT
    passport: str | None = None  # a token for calls back into our API; None: there is no way to it
    level: int = 0  # of who waits for it: code that calls code waits for a higher one
    meter: UsageMeter = field(default_factory=UsageMeter, compare=False)
    consumer: Consumer = SERVER  # who takes turns with others for a slot


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job. `result` is the runner's JSON, None when it gave none."""

    how: JobEnding
    code: int | None
    result: bytes | None
    stdout: bytes
    stderr: bytes
    duration_us: int
    truncated: bool = False  # output past the bound was thrown away
    cpu_us: int = 0  # of all its processes together, as far as it is known
    memory_peak_bytes: int = 0  # the most they held at once, as far as it is known


class SandboxProcess(Protocol):
    """A program in a cell that stays and talks, until it is closed."""

    async def send(self, data: bytes) -> None:
        """Writes to its standard input. Raises ChannelClosed."""
        ...

    async def receive(self) -> bytes:
        """What it wrote to its standard output; nothing when it has ended."""
        ...

    def last_words(self) -> str:
        """The end of its standard error, and how it ended if it was killed."""
        ...

    async def close(self) -> None:
        """Ends every process of it; returns when nothing remains."""
        ...


class Sandbox(Protocol):
    async def run(self, job: SandboxJob) -> JobResult:
        """Runs a job to its end; cancelling kills all its processes. Raises SandboxUnavailable with what is missing."""
        ...

    async def start(self, job: SandboxJob) -> SandboxProcess:
        """Starts a program that stays and talks; it takes no slot of those that run to an end.

        Raises SandboxUnavailable with what is missing.
        """
        ...

    async def close(self) -> None:
        """Ends every cell."""
        ...
