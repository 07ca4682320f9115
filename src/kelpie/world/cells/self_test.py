"""Self-test of the isolation of cells on this machine, by attacking it from within.

The server runs it before it trusts its first cell, once for each start of the machine; `kelpie doctor` runs all of it
every time. The essential checks must pass, or no code runs at all; the others are reported.
"""

import hashlib
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kelpie.core.errors import InvalidInput, SandboxUnavailable
from kelpie.core.tools.confinement import MEGABYTE, Confinement, Runner
from kelpie.world.cells.bubblewrap_cell import BubblewrapCell
from kelpie.world.cells.mounts import PROGRAMS, isolation_options
from kelpie.world.cells.port import CellPlan, Order, OrderOutput
from kelpie.world.cells.users import CellUsers, NoUsers
from kelpie.world.files import json_file
from kelpie.world.isolation.control_group import ControlGroups
from kelpie.world.isolation.control_group_search import LEFT_OUT, NoGroups
from kelpie.world.isolation.probes import ProbeResult

PROCESSES = 12
MEMORY = 48 * MEGABYTE
_SLIGHTLY = Confinement(wall_s=20.0, processes=PROCESSES, memory_bytes=MEMORY)
_SLOWLY = replace(_SLIGHTLY, cpu_share=0.1)

# Runs in the cell; every answer is the text of a refusal, or None when there was none.
_ATTACK = """
import ctypes, errno, os, socket
def refused(deed):
    try:
        deed()
    except OSError as error:
        return error.strerror
def connect(address):
    with socket.socket() as out:
        out.settimeout(3)
        out.connect(address)
def call(*arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def children():
    count = 0
    try:
        while count < 100:
            if os.fork() == 0:
                os.read(os.pipe()[0], 1)
            count += 1
    except OSError:
        return count
def tool(path, port, unshare):
    return {
        "read": refused(lambda: open(path).close()),
        "write": refused(lambda: open("/usr/kelpie-proof", "w").close()),
        "connect": refused(lambda: connect(("127.0.0.1", port))),
        "unshare": refused(lambda: call(unshare, 0x10000000)),
        "name": refused(lambda: open("/proc/self/comm", "w").close()),
        "children": children(),
    }
"""
_BOMB = "def tool(): return len(bytearray(b'x') * (256 << 20))"
_UNSHARE = {"x86_64": 272, "aarch64": 97}

_BUSY = """
import time
def tool():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
"""
NO_LANDLOCK = "use Linux 5.13 or newer with landlock in its lsm= list; until then only the mounts protect files"
_BROKEN = "do not run untrusted code on this machine; run `kelpie doctor --isolation` and read docs/security.md"


class Starter(Protocol):
    @property
    def groups(self) -> ControlGroups | NoGroups: ...

    @property
    def users(self) -> CellUsers | NoUsers: ...

    async def open(self, plan: CellPlan) -> BubblewrapCell: ...


@dataclass(frozen=True, slots=True)
class Proof:
    """Results of the checks. `lacking` is the reason why no code may run, None when the essential checks pass."""

    tried: Sequence[ProbeResult]
    lacking: str | None


async def prove(cells: Starter, machine: str, *, thoroughly: bool = False) -> Proof:
    """Attacks a cell; a thorough test also takes more memory than the cell may have."""
    try:
        told = await _attack(cells, machine)
    except SandboxUnavailable as error:
        return Proof([ProbeResult("the sandbox starts", False, str(error), "see the features below")], str(error))
    essential = [
        _isolation("host files are hidden", told["read"]),
        _isolation("only scratch space is writable", told["write"]),
        _isolation("no network access", told["connect"]),
        _isolation("system calls are filtered", told["unshare"]),
    ]
    extra = [_landlock(told["name"]), *_user(cells.users), _processes(told["children"], cells.groups)]
    if thoroughly:
        extra += [await _memory(cells), await _processor(cells)]
    failing = [each.name for each in essential if not each.works]
    lacking = f"code cannot be isolated on this server: failed checks: {', '.join(failing)}" if failing else None
    return Proof(
        [ProbeResult("the sandbox starts", True, "bubblewrap with all namespaces"), *essential, *extra], lacking
    )


async def _attack(cells: Starter, machine: str) -> dict[str, Any]:
    with (
        tempfile.NamedTemporaryFile(prefix="kelpie-proof-") as secret,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        given = {"path": secret.name, "port": server.getsockname()[1], "unshare": _UNSHARE.get(machine, 0)}
        output = await _run(cells, _ATTACK, given)
    if output.result is None or not (told := json.loads(output.result))["ok"]:
        reason = output.stderr.decode("utf-8", "replace").strip() or f"code {output.code}"
        raise SandboxUnavailable(f"code cannot be isolated on this server: a sandbox failed ({reason[-300:]})")
    value: dict[str, Any] = told["value"]
    return value


async def _run(cells: Starter, source: str, arguments: dict[str, Any], most: Confinement = _SLIGHTLY) -> OrderOutput:
    cell = await cells.open(CellPlan(Runner.python))
    try:
        request = {"source": source, "function": "tool", "arguments": arguments}
        await cell.run(Order(json.dumps(request).encode(), most))
        return cell.output()
    finally:
        await cell.kill()
        if cell.sockets is not None:
            cell.sockets.close()


def _isolation(name: str, refusal: str | None) -> ProbeResult:
    if refusal is None:
        return ProbeResult(name, False, "not refused", _BROKEN)
    return ProbeResult(name, True, f"refused ({refusal})")


def _landlock(refusal: str | None) -> ProbeResult:
    name = "Landlock denies what the mounts allow"
    return ProbeResult(name, False, "not refused", NO_LANDLOCK) if refusal is None else _isolation(name, refusal)


def _user(users: CellUsers | NoUsers) -> list[ProbeResult]:
    """The check of the cell's user; none if the server is not root: cells are then the same ordinary user."""
    name = "runs as an unprivileged user on the host"
    if isinstance(users, CellUsers):
        return [ProbeResult(name, True, "switched to a user that owns nothing here")]
    return [] if users.seen is None else [ProbeResult(name, False, users.seen, users.remedy)]


def _processes(children: int | None, groups: ControlGroups | NoGroups) -> ProbeResult:
    name = "processes are limited"
    if children is None:
        return ProbeResult(name, False, "100 were not refused", _remedy(groups))
    means = "an rlimit of the user" if isinstance(groups, NoGroups) else "a control group"
    return ProbeResult(name, True, f"refused after {children}, by {means}")


async def _memory(cells: Starter) -> ProbeResult:
    name = f"memory is limited ({MEMORY // MEGABYTE} MB tried)"
    output = await _run(cells, _BOMB, {})
    if output.out_of_memory and output.result is None:
        return ProbeResult(name, True, "the kernel killed what used more, by a control group")
    if output.result is not None and "MemoryError" in output.result.decode("utf-8", "replace"):
        return ProbeResult(name, False, "only per process, by an rlimit", _remedy(cells.groups))
    return ProbeResult(name, False, "256 MB were not refused", _remedy(cells.groups))


async def _processor(cells: Starter) -> ProbeResult:
    name = f"CPU is limited ({_SLOWLY.cpu_share:.0%} of a core tried)"
    output = await _run(cells, _BUSY, {}, _SLOWLY)
    if output.throttled:
        return ProbeResult(name, True, "the kernel throttled what used more, by a control group")
    return ProbeResult(name, False, "only by the timeout", _remedy(cells.groups))


def _remedy(groups: ControlGroups | NoGroups) -> str:
    return groups.remedy if isinstance(groups, NoGroups) else LEFT_OUT


async def lacking(cells: Starter, kept: Path | None) -> str | None:
    """Reason why no code may run, or None. A test that passed since the machine started, with the same isolation, is
    not repeated."""
    if kept is not None and sys.platform == "linux" and _read(kept) == _identity(cells.users):
        return None
    found = (await prove(cells, platform.machine())).lacking
    if found is None and kept is not None:
        json_file.write(kept, _identity(cells.users))  # the proof may have found out that there are no users
    return found


def _read(kept: Path) -> Any:
    try:
        return json_file.read(kept)
    except InvalidInput:
        return None  # nothing was kept, or nothing that can be read: it is proven again


def _identity(users: CellUsers | NoUsers) -> dict[str, Any]:
    """Everything that the result depends on."""
    admission = 0 if isinstance(users, CellUsers) else None
    programs = sorted(PROGRAMS.glob("*.*"))
    told = [
        *isolation_options(CellPlan(Runner.python), 0, 0, (), admission),
        *(f"{each.name} {each.stat().st_mtime_ns}" for each in programs),
    ]
    return {
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "user": os.getuid(),
        "bwrap": shutil.which("bwrap"),
        "walls": hashlib.sha256("\0".join(told).encode()).hexdigest(),
    }
