"""Construction of a cell with bubblewrap: the parts of the host that it sees, and what it is cut off from.

It sees the programs of this machine and the interpreter, read-only, a scratch directory that is removed afterwards, and
the mounts of its plan. It never sees the server's files, environment, processes or network.
"""

import json
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import API_PORT, PROXY_PORT, Runner
from kelpie.world.cells.port import CellPlan

PROGRAMS = Path(__file__).parent.with_name("cell_programs")
INSIDE = "/run/kelpie"
USER = 1000  # the user id in every cell
SCRATCH = "/tmp"
SHARED_MEMORY_BYTES = 16 * 1024 * 1024
NODE_MISSING = "Node.js is not installed on the server; install the package nodejs (18 or newer) to run JavaScript"

_WIDE = ("/", "/opt", "/home", "/srv", "/var", "/mnt", "/media", "/data", "/app")
_BASE = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
# Files that programs look for outside /usr, if they exist: certificates, the linker's cache, settings of runtimes.
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "R")
_ETC_PATTERNS = ("java-*",)


def program(
    plan: CellPlan,
    control: int,
    *,
    inside: str = INSIDE,
    writable: Sequence[str] = (SCRATCH, "/dev/shm"),
    ports: Sequence[int] = (API_PORT, PROXY_PORT),
    admission: int | None = None,
) -> list[str]:
    """The command that is started in the cell; the descriptor is its end of the control socket.

    With a descriptor for `admission`, it switches to a user of its own before it reads anything else.
    """
    told = {
        "runner": plan.runner.value,
        "ports": ports,
        "writable": [*writable, *(mount.target for mount in plan.mounts if mount.writable)],
        "node": _node() if plan.runner is Runner.node else None,
        "arguments": [f"{inside}/node_runner.cjs"],
    }
    become = f"import own_user; own_user.become({USER}, {admission}); " if admission is not None else ""
    enter = f"import sys; sys.path.insert(0, {inside!r}); {become}import launcher; launcher.main()"
    return [interpreter(), "-I", "-S", "-X", "utf8", "-c", enter, str(control), json.dumps(told)]


def isolation_options(
    plan: CellPlan, information: int, filtered: int | None, hidden: Sequence[str] = (), admission: int | None = None
) -> list[str]:
    """Bubblewrap's options; it inherits the descriptors for its own report and for the filter.

    `hidden` paths are covered, in case they lie below something that is shown. With a descriptor for `admission`,
    bubblewrap waits there until the users of the cell are set, and the program it starts must switch to one of them.
    """
    return [
        "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv",
        "--hostname", "cell", "--info-fd", str(information), *_user(admission),
        *(("--seccomp", str(filtered)) if filtered is not None else ()),
        *_host(), *_covers(hidden), *_inside(),
        "--perms", "1777", "--size", str(plan.scratch_bytes), "--tmpfs", SCRATCH, "--chdir", SCRATCH,
        *_mounts(plan), "--remount-ro", "/",
    ]  # fmt: skip


def _user(admission: int | None) -> Sequence[str]:
    if admission is None:
        return ("--disable-userns", "--cap-drop", "ALL", "--uid", str(USER), "--gid", str(USER))
    becoming = (word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}"))
    # Bubblewrap has no --disable-userns with it: further namespaces are then refused by the filter alone.
    return ("--userns-block-fd", str(admission), "--cap-drop", "ALL", *becoming)


def shown_paths() -> list[str]:
    """The programs of this machine that every cell sees."""
    host = _host()
    return [host[at + 1] for at, word in enumerate(host) if word == "--ro-bind"]


def interpreter() -> str:
    """The Python below any virtual environment."""
    return str(Path(getattr(sys, "_base_executable", None) or sys.executable).resolve())


def environment(scratch: str = SCRATCH) -> dict[str, str]:
    """The environment of every cell before that of the order."""
    places = ("/usr/local/bin", "/usr/bin", "/bin", str(Path(interpreter()).parent))
    return {"PATH": ":".join(dict.fromkeys(places)), "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}


@cache
def _host() -> tuple[str, ...]:
    """The programs of this machine; looked up once, because they do not move while a server runs."""
    parts = tuple(_host_parts())
    return (*_parents([INSIDE, *(parts[at + 2] for at, word in enumerate(parts) if word.startswith("--ro"))]), *parts)


def _parents(targets: Iterable[str]) -> Iterator[str]:
    """The directories that contain these; bubblewrap would create them for root alone."""
    for path in sorted({str(parent) for target in targets for parent in Path(target).parents}):
        if path != "/" and not Path(path).is_relative_to("/usr"):
            yield from ("--perms", "755", "--dir", path)


def _host_parts() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for path in sorted({*_python_parts(), *_node_parts()}):
        if not Path(path).is_relative_to("/usr"):
            yield from ("--ro-bind", path, path)
    for name in ("/usr/src", "/usr/local/src"):  # images often keep the application itself there
        if Path(name).is_dir():
            yield from ("--tmpfs", name)
    for name in (*_ETC, *sorted(found.name for pattern in _ETC_PATTERNS for found in Path("/etc").glob(pattern))):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _covers(hidden: Sequence[str]) -> Iterator[str]:
    for path in hidden:
        if any(Path(path).is_relative_to(root) for root in shown_paths()):
            yield from ("--tmpfs", path)


def _inside() -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev", "--perms", "1777")
    yield from ("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev", "--ro-bind", str(PROGRAMS), INSIDE)
    for name in ("passwd", "group", "hosts"):
        yield from ("--ro-bind", str(PROGRAMS / "etc" / name), f"/etc/{name}")


def _mounts(plan: CellPlan) -> Iterator[str]:
    yield from _parents(mount.target for mount in plan.mounts)
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


def _node_parts() -> set[str]:
    """Paths of the Node.js installation; only its program, where that directory holds more than Node.js."""
    found = _found_node()
    if found is None:
        return set()
    prefix = found.parent.parent
    is_its_own = any((prefix / part).is_dir() for part in ("include/node", "lib/node_modules"))
    return {str(prefix) if is_its_own and not _too_wide(prefix) else str(found)}


def _python_parts() -> set[str]:
    """Paths of this Python installation; only what it needs, where that directory holds more than Python."""
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    if not any(_too_wide(Path(prefix)) for prefix in prefixes):
        return prefixes
    library = Path(sysconfig.get_config_var("LIBDIR") or "/", sysconfig.get_config_var("INSTSONAME") or "")
    stdlib = {sysconfig.get_path(name, vars=_BASE) for name in ("stdlib", "platstdlib")}
    return {interpreter(), *stdlib, *({str(library)} if library.is_file() else ())}


def _too_wide(prefix: Path) -> bool:
    """True if a directory may contain files of users besides the programs."""
    return Path.home().is_relative_to(prefix) or str(prefix) in _WIDE
