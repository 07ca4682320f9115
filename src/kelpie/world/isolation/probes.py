"""Probes of this machine's means of isolation, each tested by its effect and not by its presence.

Each means is tested in a process of its own, all at once and under one time limit, and changes nothing outside it. A
means without effect comes with a remedy for the operator.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kelpie.world.isolation.bubblewrap_errors import NAMESPACES
from kelpie.world.processes.processes import Processes, SystemProcesses

PROBE_S = 10.0  # for each; they run side by side
OUTPUT_BYTES_MAX = 4096
TOO_BUSY = "unknown, because this machine is too busy; try again later"
LINUX_ONLY = "available on Linux only; run Kelpie on Linux or in a Linux virtual machine"

_PROBE = (sys.executable, "-I", "-S", str(Path(__file__).with_name("probe_program.py")))


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One means of isolation: whether it had an effect, the observation, and the remedy when it had none."""

    name: str
    works: bool
    seen: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class _Means:
    name: str
    command: tuple[str, ...]
    remedy: str


def isolation(processes: Processes | None = None) -> list[ProbeResult]:
    """Tests every means there is. It takes a moment, at most `PROBE_S`."""
    return asyncio.run(_try_all(processes or SystemProcesses()))


async def _try_all(processes: Processes) -> list[ProbeResult]:
    with tempfile.TemporaryDirectory(prefix="kelpie-doctor-") as scratch:
        return list(await asyncio.gather(*(_try(processes, each) for each in _means(scratch))))


def _means(scratch: str) -> Sequence[_Means]:
    # The scratch directory is writable here, so that only a jail can be the reason when it is not there.
    jail = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    return (
        _Means(
            "bubblewrap",
            ("bwrap", *jail, *_PROBE, "jailed", scratch),
            "install the package bubblewrap, and allow users to create namespaces (see the next line); in Docker, run "
            "with --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
        ),
        _Means(
            "user namespaces",
            (*_PROBE, "user_namespace"),
            NAMESPACES,
        ),
        _Means("network namespaces", (*_PROBE, "network_namespace"), "the same as for user namespaces"),
        _Means("Landlock", (*_PROBE, "landlock"), "use Linux 5.13 or newer with landlock in its lsm= list"),
        _Means("seccomp", (*_PROBE, "seccomp"), "use a kernel with CONFIG_SECCOMP_FILTER"),
        _Means(
            "gVisor",
            ("runsc", "--rootless", "--network=none", "do", "echo", "yes runs a command in its kernel"),
            "install runsc, only if tools need their own kernel",
        ),
        _Means(
            "KVM",
            (*_PROBE, "kvm"),
            "allow this user to open /dev/kvm (group kvm), only if tools need virtual machines",
        ),
    )


async def _try(processes: Processes, means: _Means) -> ProbeResult:
    if sys.platform != "linux":
        return ProbeResult(means.name, False, f"not on {sys.platform}", LINUX_ONLY)
    if shutil.which(means.command[0]) is None:
        return ProbeResult(means.name, False, f"no {means.command[0]} on the PATH", means.remedy)
    try:
        done = await processes.run(means.command, timeout_s=PROBE_S, output_bytes_max=OUTPUT_BYTES_MAX)
    except OSError as error:
        return ProbeResult(means.name, False, f"{means.command[0]} cannot be run: {error.strerror}", means.remedy)
    if done.timed_out:
        return ProbeResult(means.name, False, f"no result within {PROBE_S:.0f} s", TOO_BUSY)
    answer, _, seen = _last_line(done.stdout).partition(" ")
    if done.code != 0 or answer not in ("yes", "no"):
        return ProbeResult(means.name, False, _last_line(done.stderr) or f"exited with code {done.code}", means.remedy)
    return ProbeResult(means.name, answer == "yes", seen, None if answer == "yes" else means.remedy)


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
