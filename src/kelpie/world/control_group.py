"""Control groups: how much all processes of a cell together may take of memory, processes and processor.

Both kinds of the kernel are spoken: the unified one where it was delegated to us, the older one where we may make
groups in it, which usually takes root. A machine with neither has no groups; whoever starts cells then says so.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kelpie.core.confinement import MEMORY_BYTES_MIN, Confinement

PREFIX = "kelpie-"
PERIOD_US = 100_000
OWN_PROCESSES = 3  # of a cell, besides those of the order: bubblewrap outside, bubblewrap inside, the runner
_UNLIMITED = {"cpu.max": f"max {PERIOD_US}", "cpu.cfs_quota_us": "-1"}


@dataclass(frozen=True, slots=True)
class Group:
    """One group, which in the older kind is a directory per controller."""

    directories: tuple[Path, ...]

    def entries(self) -> list[str]:
        """The files into which a process writes 0 to enter."""
        return [str(each / "cgroup.procs") for each in self.directories]

    def limit(self, most: Confinement) -> None:
        """Sets what its processes may take from now on."""
        quota = max(1000, int(most.cpu_share * PERIOD_US))
        memory = str(max(most.memory_bytes, MEMORY_BYTES_MIN))
        self._set("memory.max", memory)
        self._set("memory.swap.max", "0")
        self._set("memory.oom.group", "1")
        self._set("memory.limit_in_bytes", memory)
        self._set("memory.memsw.limit_in_bytes", memory)
        self._set("pids.max", str(most.processes + OWN_PROCESSES))
        self._set("cpu.max", f"{quota} {PERIOD_US}")
        self._set("cpu.cfs_quota_us", str(quota))

    def lift(self) -> None:
        """Gives its processes the whole processor: what is to die must get its turn for that."""
        for name, value in _UNLIMITED.items():
            self._set(name, value)

    def kill(self) -> None:
        """Where the kernel can do it, kills all at once."""
        self._set("cgroup.kill", "1")

    def kill_each(self) -> None:
        """Kills those that are there right now; one that ends by itself meanwhile is no trouble."""
        for process in (self._read("cgroup.procs") or "").split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def ran_out_of_memory(self) -> bool:
        told = (self._read("memory.events") or self._read("memory.oom_control") or "").split()
        return "oom_kill" in told and int(told[told.index("oom_kill") + 1]) > 0

    def cpu_us(self) -> int:
        if (nanoseconds := self._read("cpuacct.usage")) is not None:
            return int(nanoseconds) // 1000
        told = (self._read("cpu.stat") or "").split()
        return int(told[told.index("usage_usec") + 1]) if "usage_usec" in told else 0

    def memory_peak_bytes(self) -> int:
        found = self._read("memory.peak") or self._read("memory.max_usage_in_bytes")
        return int(found) if found else 0

    def remove(self) -> bool:
        """Whether it is gone; it stays while there is a process in it."""
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _set(self, name: str, value: str) -> None:
        for directory in self.directories:
            file = directory / name
            if file.exists():
                file.write_text(value)
                return

    def _read(self, name: str) -> str | None:
        for directory in self.directories:
            try:
                return (directory / name).read_text()
            except FileNotFoundError:
                continue
        return None


class ControlGroups:
    """The place below which groups are made, one directory for this process in each hierarchy."""

    def __init__(self, tops: Sequence[Path]) -> None:
        self.tops = tuple(tops)

    def make(self, name: str) -> Group:
        """Raises OSError, and then leaves nothing behind."""
        group = Group(tuple(top / name for top in self.tops))
        try:
            for directory in group.directories:
                directory.mkdir()
        except OSError:
            group.remove()
            raise
        return group

    def close(self) -> None:
        Group(self.tops).remove()


def find(proc: Path = Path("/proc")) -> ControlGroups | None:
    """Where this process may limit memory and processes of others, or None."""
    hierarchies = list(_hierarchies(proc))
    for wanted, required in ((("",), ()), (("memory", "pids", "cpu", "cpuacct"), ("memory", "pids"))):
        found = {name: path for name, path in hierarchies if name in wanted}
        if not found or any(name not in found for name in required):
            continue
        try:
            return ControlGroups([_top(path, name == "") for name, path in found.items()])
        except OSError:
            continue  # not ours to divide: the next kind, or none
    return None


def _top(own: Path, unified: bool) -> Path:
    """This process's own directory below its group; what earlier lives left there is removed."""
    if unified:
        _delegate(own)
    for old in sorted(own.glob(f"{PREFIX}*")):
        if not Path("/proc", old.name.removeprefix(PREFIX)).exists():
            for each in sorted(old.glob("*/")):
                Group((each,)).remove()
            Group((old,)).remove()
    top = own / f"{PREFIX}{os.getpid()}"
    top.mkdir(exist_ok=True)
    if unified:
        (top / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    return top


def _delegate(own: Path) -> None:
    """Lets groups below this one have limits; the unified kind wants its processes in a leaf for that."""
    control = own / "cgroup.subtree_control"
    if {"memory", "pids"} <= set(control.read_text().split()):
        return
    if not {"memory", "pids"} <= set((own / "cgroup.controllers").read_text().split()):
        raise PermissionError(f"{own} has no controllers")
    leaf = own / "server"
    leaf.mkdir(exist_ok=True)
    for process in (own / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(process)
    control.write_text("+memory +pids +cpu")


def _hierarchies(proc: Path) -> Iterator[tuple[str, Path]]:
    """Controllers (empty: the unified kind) with the directory of this process in each."""
    mounts: dict[str, str] = {}
    for line in (proc / "self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounts[""] = where
        elif kind == "cgroup":
            mounts |= dict.fromkeys(options.split(","), where)
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts:
                own = Path(mounts[name], path.lstrip("/"))
                yield name, own if own.is_dir() else Path(mounts[name])
