"""Limits on one process in a cell, set from outside: they apply before its order arrives.

A control group, where there is one, limits all processes of a cell together; these limits cover only what it cannot
see.
"""

import os
import resource
from pathlib import Path

from kelpie.core.tools.confinement import MEGABYTE, MEMORY_BYTES_MIN, Confinement, Runner
from kelpie.world.cells.port import CellPlan

FILES_MAX = 1024
_USER_TICKS = 11  # in /proc/*/stat, of what follows the name; the system's are next to them
# Needs of the runner itself: addresses without memory behind them for Python, writable memory for Node.
PYTHON_BYTES, NODE_BYTES = 192 * MEGABYTE, 192 * MEGABYTE


def limit(process: int, plan: CellPlan, most: Confinement, *, grouped: bool) -> None:
    """Limits the process and every process that it starts from now on. Raises OSError."""
    limits = _limits(plan, most, grouped)
    limits[resource.RLIMIT_CPU] += spent_s(process)  # a start on a slow machine is not the order's doing
    for name, wanted in limits.items():
        _, bound = resource.getrlimit(name)  # our own limit applies to it as well, and could not be raised
        value = wanted if bound == resource.RLIM_INFINITY else min(wanted, bound)
        resource.prlimit(process, name, (value, value))


def spent_s(process: int) -> int:
    """Processor time that it has used so far, in whole seconds."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(after_name[_USER_TICKS]) + int(after_name[_USER_TICKS + 1])
    return ticks // os.sysconf("SC_CLK_TCK")


def _limits(plan: CellPlan, most: Confinement, grouped: bool) -> dict[int, int]:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: FILES_MAX, resource.RLIMIT_FSIZE: _file_bytes(plan)}
    limits[resource.RLIMIT_CPU] = int(most.wall_s * max(1.0, most.cpu_share)) + 2
    if not grouped:
        memory = max(most.memory_bytes, MEMORY_BYTES_MIN)
        limits[resource.RLIMIT_NPROC] = most.processes
        limits[resource.RLIMIT_DATA] = memory + (NODE_BYTES if plan.runner is Runner.node else 0)
        if plan.runner is Runner.python:
            limits[resource.RLIMIT_AS] = memory + PYTHON_BYTES
    return limits


def _file_bytes(plan: CellPlan) -> int:
    writable = any(mount.writable for mount in plan.mounts)
    return max(plan.scratch_bytes, plan.file_bytes_max) if writable else plan.scratch_bytes
