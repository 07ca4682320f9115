"""Confinement of code from outside: the kind of isolation, and limits on its use of the machine. Pure."""

from dataclasses import dataclass
from enum import StrEnum

MEGABYTE = 1024 * 1024
MEMORY_BYTES_MIN = 32 * MEGABYTE  # the needs of a cell itself; less counts as this
API_PORT = 8283  # inside the cell: our API, for who shows the passport of the job
PROXY_PORT = 8284  # inside the cell: an HTTP proxy to the hosts that the job may reach


class Isolation(StrEnum):
    """Kinds of isolation, the weakest first. A tool names the weakest it accepts."""

    process = "process"  # namespaces, control groups, system-call filter and Landlock of the one kernel
    wasm = "wasm"
    userspace_kernel = "userspace_kernel"
    vm = "vm"


class Runner(StrEnum):
    """The program that runs in the cell. Each reads the job's request."""

    python = "python"
    node = "node"
    command = "command"  # any program: {"argv": [...], "stdin": "..."}, or "talks": true for one that stays and talks


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host inside the cell: read-only, such as installed packages, or an agent's own workspace.

    One that is not `ours` belongs to people: its owners and modes are never changed for the cell.
    """

    source: str
    target: str
    writable: bool = False
    ours: bool = True


@dataclass(frozen=True, slots=True)
class Confinement:
    """Limits on one run. `egress` names hosts that it may reach over HTTP(S); with none it has no network."""

    isolation: Isolation = Isolation.process
    wall_s: float = 30.0
    memory_bytes: int = 256 * MEGABYTE
    cpu_share: float = 1.0  # of one core
    processes: int = 64  # threads count as well
    output_bytes: int = MEGABYTE  # of standard output and of standard error, each
    scratch_bytes: int = 64 * MEGABYTE  # limit on what it may write, all of it deleted afterwards
    egress: tuple[str, ...] = ()


DEFAULT_CONFINEMENT = Confinement()
