"""What it costs to run code of tools in cells, each beside its bare baseline in the same run; prints JSON.

    python bench/tools.py [--repeats 40] [--concurrent 50]

"warm" is a call that finds a cell waiting, from the job to its result; its baseline is a plain Python process that
waited on a pipe. "cold" is a call that has its cell started first; its baseline is `python -I -S` with the same code.
"concurrent" runs many calls at once. Baselines and cells take turns, so that both are as disturbed by what else the
machine does. Times are wall milliseconds and hold for this machine as busy as it was; `cpu_ms` is the processor time of
all of a call's processes, start included, where control groups count it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kelpie.core.permissions.tool_permissions import Subject, ToolKind, ToolPatterns
from kelpie.core.tools.confinement import Confinement, Runner
from kelpie.sandbox.port import JobEnding, JobResult, SandboxJob
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.mounts import interpreter
from kelpie.world.cells.port import CellPlan, Order
from kelpie.world.clock import SystemClock
from load.server import quantiles

SOURCE = "def tool(a, b):\n    return a + b\n"
REQUEST = json.dumps({"source": SOURCE, "function": "tool", "arguments": {"a": 1, "b": 2}}).encode()
JOB = SandboxJob(Runner.python, REQUEST)
CHECKS = 20_000

_WAITING = """
import json, sys
print("ready", flush=True)
told = json.loads(sys.stdin.readline())
space = {}
exec(compile(told["source"], "tool.py", "exec"), space)
print(json.dumps(space[told["function"]](**told["arguments"])), flush=True)
"""


def checked(ended: JobResult) -> None:
    assert ended.how is JobEnding.finished and ended.result is not None and json.loads(ended.result)["value"] == 3, (
        ended
    )


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


def bare_process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        (interpreter(), "-I", "-S", "-c", _WAITING), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def bare_call(process: subprocess.Popen[str]) -> None:
    """Gives a waiting process its order and reads the answer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(REQUEST.decode() + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "3\n"


def bare_warm() -> float:
    process = bare_process()
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    started = time.perf_counter()
    bare_call(process)
    took = (time.perf_counter() - started) * 1000
    process.wait()
    return took


def bare_cold() -> float:
    started = time.perf_counter()
    process = bare_process()
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    bare_call(process)
    took = (time.perf_counter() - started) * 1000
    process.wait()
    return took


async def warm(cells: BubblewrapCells) -> float:
    """A cell that waits and has had the time to prepare itself, as those of the pool."""
    cell = await cells.start(CellPlan(Runner.python))
    await asyncio.sleep(0.3)
    try:
        return await timed(lambda: cell.run(Order(REQUEST, Confinement())))
    finally:
        assert cell.output().result is not None
        await cell.kill()


async def cold(sandbox: ProcessSandbox) -> float:
    async def call() -> None:
        checked(await sandbox.run(JOB))

    return await timed(call)


async def concurrent(sandbox: ProcessSandbox, count: int) -> float:
    async def calls() -> None:
        for ended in await asyncio.gather(*(sandbox.run(JOB) for _ in range(count))):
            checked(ended)

    return await timed(calls)


def permission_us() -> float:
    """One check of a call against lists of patterns, none of which is remembered for it."""
    permits = ToolPatterns(allow=("mail_*", "tag:office", "search_*", "run_code"), deny=("*_delete", "shell"))
    subjects = [Subject(f"mail_{number}", ToolKind.custom) for number in range(100)]
    started = time.perf_counter()
    for number in range(CHECKS):
        permits.refusal(subjects[number % len(subjects)])
    return (time.perf_counter() - started) / CHECKS * 1e6


async def measure(repeats: int, count: int) -> dict[str, Any]:
    cells = BubblewrapCells()
    await (await cells.start(CellPlan(Runner.python))).kill()  # the proof of the walls is not a part of a call
    plain = ProcessSandbox(cells, SystemClock(), warm_max=0)
    found: dict[str, list[float]] = {name: [] for name in ("warm", "bare_warm", "cold", "bare_cold")}
    used: list[float] = []
    for _ in range(repeats):
        found["bare_warm"].append(bare_warm())
        found["warm"].append(await warm(cells))
        found["bare_cold"].append(bare_cold())
        found["cold"].append(await cold(plain))
        used.append((await plain.run(JOB)).cpu_us / 1000)
        await plain.settled()
    pooled = ProcessSandbox(cells, SystemClock(), cells_max=16, waiting_max=count)
    many = await concurrent(pooled, count)
    counts = pooled.counts()
    await pooled.close()
    await plain.close()
    return {
        **{f"{name}_ms": quantiles(values) for name, values in found.items()},
        "cpu_of_the_code_ms": quantiles(used),
        "concurrent": {"calls": count, "places": 16, "ms": round(many, 1), "ms_each": round(many / count, 1)},
        "pool": {name: counts[name] for name in ("hits", "misses")},
        "permission_check_us": round(permission_us(), 2),
        "control_groups": cells.has_groups,
        "python": sys.version.split()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--concurrent", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.repeats, given.concurrent)), indent=2))


if __name__ == "__main__":
    main()
