"""Control groups: limits on the memory, processes and processor of all processes of a cell together.

The unified hierarchy of the kernel and the older one have other names for the same limits; a limit that matters and
cannot be set is an error, never left out. `control_group_search` finds a directory in which groups can be made.
"""

import errno
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kelpie.core.tools.confinement import MEMORY_BYTES_MIN, Confinement

PERIOD_US = 100_000
OWN_PROCESSES = 3  # of a cell, besides those of the order: bubblewrap outside, bubblewrap inside, the runner
# Enters the groups named by its first arguments, then executes the rest; a shell starts faster than anything else.
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 97; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Group:
    """One group, which in the older hierarchy is a directory per controller."""

    directories: tuple[Path, ...]

    def entering(self, command: Sequence[str]) -> list[str]:
        """A command that enters the group and then executes the given command."""
        files = [str(each / "cgroup.procs") for each in self.directories]
        return ["/bin/sh", "-c", _ENTER, "sh", *files, "--", *command]

    def limit(self, most: Confinement) -> None:
        """Sets the limits of its processes from now on. Raises OSError, also where the kernel has no such limit."""
        quota = max(1000, int(most.cpu_share * PERIOD_US))
        memory = str(max(most.memory_bytes, MEMORY_BYTES_MIN))
        limited = self._set("memory.max", memory) or self._set("memory.limit_in_bytes", memory)
        if not limited or not self._set("pids.max", str(most.processes + OWN_PROCESSES)):
            raise OSError(errno.ENODEV, "it has no limits for memory and processes", str(self.directories[0]))
        self._set("memory.swap.max", "0")
        self._set("memory.oom.group", "1")
        self._set("memory.memsw.limit_in_bytes", memory)
        self._set("cpu.max", f"{quota} {PERIOD_US}")
        self._set("cpu.cfs_quota_us", str(quota))

    def lift(self) -> None:
        """Lifts the processor limit: processes that are being killed need processor time to end."""
        with suppress(OSError):  # the group is gone; and without it there are other ways to end them
            self._set("cpu.max", f"max {PERIOD_US}")
            self._set("cpu.cfs_quota_us", "-1")

    def kill(self) -> None:
        """Kills all processes at once, where the kernel supports it."""
        with suppress(OSError):  # as above
            self._set("cgroup.kill", "1")

    def kill_each(self) -> None:
        """Kills the current processes one by one; one that ends by itself meanwhile is no error."""
        for process in (self._read("cgroup.procs") or "").split():
            if process != "0":  # it is none that we can see; and 0 would mean ourselves
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)

    def ran_out_of_memory(self) -> bool:
        told = (self._read("memory.events") or self._read("memory.oom_control") or "").split()
        return "oom_kill" in told and int(told[told.index("oom_kill") + 1]) > 0

    def was_throttled(self) -> bool:
        """True if its processes wanted more processor time than their share."""
        told = (self._read("cpu.stat") or "").split()
        return "nr_throttled" in told and int(told[told.index("nr_throttled") + 1]) > 0

    def cpu_us(self) -> int:
        if (nanoseconds := self._read("cpuacct.usage")) is not None:
            return int(nanoseconds) // 1000
        told = (self._read("cpu.stat") or "").split()
        return int(told[told.index("usage_usec") + 1]) if "usage_usec" in told else 0

    def memory_peak_bytes(self) -> int:
        found = self._read("memory.peak") or self._read("memory.max_usage_in_bytes")
        return int(found) if found else 0

    def remove(self) -> bool:
        """Removes the group; False while there is a process in it."""
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _set(self, name: str, value: str) -> bool:
        """Writes a setting; False if the kernel has none of this name."""
        for directory in self.directories:
            file = directory / name
            if file.exists():
                file.write_text(value)
                return True
        return False

    def _read(self, name: str) -> str | None:
        for directory in self.directories:
            try:
                return (directory / name).read_text()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):  # ENODEV: the group went while we read
                    raise
        return None


class ControlGroups:
    """The directory below which groups are made, one for this process in each hierarchy."""

    def __init__(self, tops: Sequence[Path]) -> None:
        self.tops = tuple(tops)

    def make(self, name: str) -> Group:
        """Makes a group. Raises OSError, and then leaves nothing behind."""
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
