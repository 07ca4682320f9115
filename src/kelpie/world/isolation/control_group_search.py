"""Search for a directory in which this process may make control groups, by making one and moving a process into it.

Both hierarchies are supported: the unified one where its directories permit it, the older one, which usually needs
root. No process but this one is moved if that can be avoided; if no directory works, the result names the reason and
the remedy.
"""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kelpie.core.tools.confinement import DEFAULT_CONFINEMENT
from kelpie.world.isolation.control_group import ControlGroups, Group
from kelpie.world.isolation.probes import ProbeResult

PREFIX = "kelpie-"
LEAF = f"{PREFIX}server"  # for the processes of a group that is divided
CONTROLLERS = ("memory", "pids", "cpu")
REQUIRED = frozenset(CONTROLLERS[:2])
MOVES_MAX = 5  # of everybody in a group: others may start processes meanwhile
TRIAL_S = 10.0

READ_ONLY = (
    "allow the container to write its control groups: `docker run --security-opt writable-cgroups=true` (Docker 28), "
    "`podman run --security-opt unmask=/sys/fs/cgroup`"
)
DENIED = (
    "start the server as a service with Delegate=yes, or by `systemd-run --user --scope -p Delegate=yes kelpie server "
    "start`, or as root"
)
ABSENT = "use a kernel with control groups and mount cgroup2 at /sys/fs/cgroup"
NO_CONTROLLERS = (
    "start the server as a service with Delegate=yes; the kernel may also need the boot parameter cgroup_enable=memory"
)
LEFT_OUT = "delegate the CPU too: Delegate=cpu memory pids for the service, or in a drop-in of user@.service for users"


@dataclass(frozen=True, slots=True)
class NoGroups:
    """Reason why there are no groups, and the remedy."""

    seen: str
    remedy: str


def tried() -> ProbeResult:
    """Checks whether groups can be made here, from the group in which this process was started."""
    found = find()
    if isinstance(found, NoGroups):
        return ProbeResult("control groups", False, found.seen, found.remedy)
    try:
        return ProbeResult("control groups", True, f"a process entered a group below {found.tops[0].parent}")
    finally:
        found.close()


class _NoControllersError(OSError):
    """The kernel or the parent group gives a group too few controllers."""


def find(proc: Path = Path("/proc")) -> ControlGroups | NoGroups:
    """The directory in which this process may limit memory and processes of others, or the reason why there is none."""
    try:
        hierarchies, mounts = _hierarchies(proc)
    except OSError as error:
        return NoGroups(f"the list of mounts cannot be read ({error.strerror})", ABSENT)
    trouble: OSError | None = None
    if (own := hierarchies.get("")) is not None:
        for place in _unified_places(own, mounts[""]):
            try:
                return _tried([_top(place, _divide)])
            except OSError as error:
                trouble = error
    older = dict.fromkeys(hierarchies[name] for name in (*CONTROLLERS, "cpuacct") if name in hierarchies)
    if hierarchies.keys() >= REQUIRED:
        try:
            return _tried([_top(place, lambda _: None) for place in older])
        except OSError as error:
            trouble = error
    return _in_words(trouble)


def _unified_places(own: Path, mount: Path) -> Iterator[Path]:
    """Directories to try, the best first. One can occur twice; it may be refused again.

    A group that was not delegated to this process is the last: systemd ends a service in whose group anything runs out
    of memory.
    """
    if _is_delegated(own):
        yield own
    for place in (own, *own.parents):
        if place.is_relative_to(mount) and _divided(place) >= REQUIRED:
            yield place
    yield own  # with everybody who is in it


def _own(group: Path) -> Path:
    """The group of a process, or the group that was divided if it is in a leaf."""
    return group.parent if group.name == LEAF else group


def _is_delegated(own: Path) -> bool:
    """Checks whether systemd delegated the group to this process."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(own, name) == b"1":
                return True
        except OSError:
            continue  # it does not say, or not to us
    return False


def _top(place: Path, divide: Callable[[Path], None]) -> Path:
    """This process's own directory below the group; leftovers of earlier processes there are removed.

    A process id is meaningful only among visible processes: directories of a server in another container stay.
    """
    divide(place)
    kin = f"{PREFIX}ns{Path('/proc/self/ns/pid').stat().st_ino}-"
    for old in sorted(place.glob(f"{kin}[0-9]*")):
        if not Path("/proc", old.name.removeprefix(kin)).exists():
            for each in sorted(old.glob("*/")):
                Group((each,)).remove()
            Group((old,)).remove()
    top = place / f"{kin}{os.getpid()}"
    top.mkdir(exist_ok=True)
    divide(top)
    return top


def _divide(place: Path) -> None:
    """Enables limits for groups below this one; the unified hierarchy needs its processes in a leaf for that."""
    there = set(_words(place / "cgroup.controllers"))
    if not there >= REQUIRED:
        raise _NoControllersError(errno.ENODEV, f"it lacks {' and '.join(sorted(REQUIRED - there))}", str(place))
    if _divided(place) >= REQUIRED:
        return  # by us; or by an administrator who had a reason, if the processor is left out
    wanted = [name for name in CONTROLLERS if name in there]
    control = place / "cgroup.subtree_control"
    for _ in range(MOVES_MAX):
        try:
            control.write_text(" ".join(f"+{name}" for name in wanted))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            _move(place, place / LEAF)
        else:
            return
    raise OSError(errno.EBUSY, "other programs keep starting processes in it", str(place))


def _move(place: Path, leaf: Path) -> None:
    leaf.mkdir(exist_ok=True)
    for process in _processes(place):
        try:
            (leaf / "cgroup.procs").write_text(process)
        except ProcessLookupError:
            continue  # it ended by itself


def _tried(tops: list[Path]) -> ControlGroups:
    """Groups below these directories, once one was limited and entered. Raises OSError."""
    groups = ControlGroups(tops)
    try:
        trial = groups.make("trial")
        try:
            trial.limit(DEFAULT_CONFINEMENT)
            done = subprocess.run(trial.entering(["/bin/true"]), stderr=subprocess.PIPE, timeout=TRIAL_S, check=False)
        finally:
            trial.remove()
        if done.returncode != 0:
            raise OSError(errno.EACCES, "no process may enter a group below it", str(tops[0].parent))
    except subprocess.TimeoutExpired:
        groups.close()
        raise OSError(errno.ETIMEDOUT, "a process did not come back from a group below it", str(tops[0])) from None
    except OSError:
        groups.close()
        raise
    return groups


def _in_words(trouble: OSError | None) -> NoGroups:
    if trouble is None:
        return NoGroups("no control groups are mounted", ABSENT)
    seen = f"{trouble.filename}: {trouble.strerror}"
    if trouble.errno == errno.EROFS:
        return NoGroups(f"{seen}, as in most containers", READ_ONLY)
    return NoGroups(seen, NO_CONTROLLERS if isinstance(trouble, _NoControllersError) else DENIED)


def _divided(place: Path) -> set[str]:
    return set(_words(place / "cgroup.subtree_control"))


def _processes(place: Path) -> list[str]:
    return _words(place / "cgroup.procs")


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []  # it is not there, or of a kind that cannot be read: nothing to build on


def _hierarchies(proc: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """By controller (empty: the unified hierarchy), the directory of this process and its mount point."""
    mounts: dict[str, Path] = {}
    for line in (proc / "self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounts[""] = Path(where)
        elif kind == "cgroup":
            mounts |= dict.fromkeys(options.split(","), Path(where))
    found: dict[str, Path] = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts:
                own = mounts[name] / path.lstrip("/")
                found[name] = _own(own) if own.is_dir() else mounts[name]
    return found, mounts
