"""The port of worker processes: a request as bytes goes to a program, and its answer comes back as bytes.

A program is a module with a pure function `answer(request: bytes) -> bytes`. It never runs in the server's process,
whose loop it would hold up and whose memory it would use.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kelpie.core.errors import KelpieError
from kelpie.world.files.uploads import Upload


class WorkerFault(StrEnum):
    """Reason for a request without an answer."""

    time = "time"
    memory = "memory"
    crash = "crash"


class WorkerFailed(KelpieError):
    """A worker process ended before it answered."""

    def __init__(self, fault: WorkerFault) -> None:
        super().__init__(f"A worker process ended before it answered: {fault}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """A module with `answer`, and the limits of each of its requests."""

    module: str
    cpu_s: int = 5
    wall_s: float = 60.0  # only reached when the machine is so busy that the processor time is not used up
    memory_bytes: int = 512 * 1024 * 1024
    answer_bytes_max: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of the processes that all requests share."""

    processes_max: int = 2
    waiting_max: int = 32  # of one owner
    idle_s: float = 60.0  # an unused process is ended after this time


class Workers(Protocol):
    async def ask(self, program: WorkerProgram, request: bytes | Upload, owner: str) -> bytes:
        """The answer of the program to these bytes, or to the content of an upload. Owners take turns.

        Raises WorkerFailed, and Overloaded when too many requests of the owner wait.
        """
        ...

    async def close(self) -> None:
        """Ends all processes; requests that wait fail with WorkerFailed."""
        ...
