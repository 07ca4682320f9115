"""How a cell is built with bubblewrap: which parts of the host it sees, and what it is cut off from.

It sees the programs of this machine and the interpreter, read-only, a scratch directory that is gone afterwards, and
what its plan mounts. It never sees the server's files, environment, processes or network.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kelpie.core.confinement import API_PORT, PROXY_PORT, Runner
from kelpie.core.errors import SandboxUnavailable
from kelpie.world.cells import Plan

PROGRAMS = Path(__file__).with_name("cell")
INSIDE = "/run/kelpie"
SCRATCH = "/tmp"
SHARED_MEMORY_BYTES = 16 * 1024 * 1024
NODE_MISSING = "Node.js is not installed on the server; install the package nodejs (18 or newer) to run JavaScript"

# What programs look for outside /usr, where it is there: certificates, the linker's cache, settings of runtimes.
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "R")
_ETC_PATTERNS = ("java-*",)


def program(
    plan: Plan,
    control: int,
    *,
    inside: str = INSIDE,
    writable: Sequence[str] = (SCRATCH, "/dev/shm"),
    ports: Sequence[int] = (API_PORT, PROXY_PORT),
) -> list[str]:
    """What is started in the cell; the descriptor is its end of the control socket."""
    told = {
        "runner": plan.runner.value,
        "ports": ports,
        "writable": [*writable, *(mount.target for mount in plan.mounts if mount.writable)],
        "node": _node() if plan.runner is Runner.node else None,
        "arguments": [f"{inside}/node_runner.cjs"],
    }
    enter = f"import sys; sys.path.insert(0, {inside!r}); import launcher; launcher.main()"
    return [interpreter(), "-I", "-S", "-X", "utf8", "-c", enter, str(control), json.dumps(told)]


def walls(plan: Plan, information: int, filtered: int | None) -> list[str]:
    """Bubblewrap's options; the descriptors are those that it inherits for its own report and for the filter."""
    return [
        "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv",
        "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "cell", "--info-fd", str(information),
        *(("--seccomp", str(filtered)) if filtered is not None else ()),
        *_host(), *_inside(),
        "--perms", "1777", "--size", str(plan.scratch_bytes), "--tmpfs", SCRATCH, "--chdir", SCRATCH,
        *_mounts(plan), "--remount-ro", "/",
    ]  # fmt: skip


def interpreter() -> str:
    """The Python below any virtual environment."""
    return str(Path(getattr(sys, "_base_executable", None) or sys.executable).resolve())


def environment(scratch: str = SCRATCH) -> dict[str, str]:
    """What is in every cell's environment before that of the order."""
    places = ("/usr/local/bin", "/usr/bin", "/bin", str(Path(interpreter()).parent))
    return {"PATH": ":".join(dict.fromkeys(places)), "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}


@cache
def _host() -> tuple[str, ...]:
    """The programs of this machine; looked up once, because they do not move while a server runs."""
    return tuple(_host_parts())


def _host_parts() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for prefix in sorted({sys.base_prefix, sys.base_exec_prefix, *_node_prefix()}):
        if not Path(prefix).is_relative_to("/usr"):
            yield from ("--ro-bind", prefix, prefix)
    for name in (*_ETC, *sorted(found.name for pattern in _ETC_PATTERNS for found in Path("/etc").glob(pattern))):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _inside() -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev", "--ro-bind", str(PROGRAMS), INSIDE)
    for name in ("passwd", "group", "hosts"):
        yield from ("--ro-bind", str(PROGRAMS / "etc" / name), f"/etc/{name}")


def _mounts(plan: Plan) -> Iterator[str]:
    for mount in plan.mounts:
        yield from ("--bind" if mount.writable else "--ro-bind", mount.source, mount.target)


@cache
def _found_node() -> Path | None:
    found = shutil.which("node")
    return Path(found).resolve() if found else None


def _node() -> str:
    found = _found_node()
    if found is None:
        raise SandboxUnavailable(NODE_MISSING)
    return str(found)


def _node_prefix() -> tuple[str, ...]:
    found = _found_node()
    return (str(found.parent.parent),) if found is not None else ()
