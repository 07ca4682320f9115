"""Trace hashes of simulation runs, one line per scenario and seed, to compare two versions of the source.

    python bench/sim_traces.py                                      every scenario with seed 0
    python bench/sim_traces.py --seeds 0..9 --processes 2 > before.txt
    python bench/sim_traces.py --scenario many-agents clock-jumps --seeds 3..3

Every run is the command `kelpie sim run` in a process of its own, because two scenarios do not repeat within one
process. The processes are forked from one that has imported everything, which takes most of the time of a run. A line
has six fields: scenario, seed, trace hash, behaviour hash, number of events, and `held` or `broken`. The lines are
sorted, so that `diff` compares two files.

The trace hash covers the names of tasks and callbacks (`__qualname__`, without the module). It stays the same when a
module moves; it changes when a class or a function is renamed whose method or coroutine runs as a task or callback. The
behaviour hash leaves these names out. It covers the schedule, the number of events, the virtual time at the end, the
faults that fired, and the last 4000 notes (commits, faults, power cuts, model requests) with their virtual times. Every
callback moves the virtual clock, so another order of work gives another behaviour hash. After renames, compare without
the third field: `cut -d' ' -f1,2,4-`.

Exits with 1 when a run failed to print its result, and with 0 when an invariant broke: the line says so.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

NOTES = 4000  # what `kelpie sim run` prints at most

Run = tuple[str, int]


def seed_range(text: str) -> range:
    """The seeds `A..B`, both included."""
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise argparse.ArgumentTypeError(f"'{text}' is no range; write it like 0..9")
    return range(int(first), int(last) + 1)


def lines(command: Callable[[], object], runs: list[Run], processes: int) -> list[str]:
    """The lines of all runs, so many at a time. Ends the program when a run printed no result."""
    with tempfile.TemporaryDirectory() as kept:
        running: dict[int, Run] = {}
        for run in runs:
            if len(running) >= processes:
                _wait(running)
            file = Path(kept) / f"{run[0]}-{run[1]}"
            if (pid := os.fork()) == 0:
                _play(command, run, file)
            running[pid] = run
        while running:
            _wait(running)
        return [(Path(kept) / f"{name}-{seed}").read_text() for name, seed in runs]


def _play(command: Callable[[], object], run: Run, file: Path) -> None:
    """The whole life of a forked process."""
    name, seed = run
    printed = _printed(command, "run", "--scenario", name, "--seed", str(seed), "--events", str(NOTES), "--json")
    try:
        file.write_text(line(json.loads(printed)))
    except ValueError:
        os._exit(1)
    os._exit(0)


def _wait(running: dict[int, Run]) -> None:
    pid, status = os.wait()
    run = running.pop(pid)
    if status != 0:
        raise SystemExit(f"kelpie sim run --scenario {run[0]} --seed {run[1]} printed no result")


def line(run: dict[str, Any]) -> str:
    ending = "broken" if run["broken"] else "held"
    hashes = f"{run['trace_hash']} {behaviour_hash(run)}"
    return f"{run['scenario']} {run['seed']} {hashes} {run['events']} {ending}"


def behaviour_hash(run: dict[str, Any]) -> str:
    covered = [run[name] for name in ("schedule", "events", "virtual_s", "fired", "last_events")]
    return hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16).hexdigest()


def _printed(command: Callable[[], object], *arguments: str) -> str:
    """What `kelpie sim` prints with these arguments, in this process."""
    sys.argv = ["kelpie", "sim", *arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        command()
    return printed.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", nargs="*", default=[], metavar="NAME", help="all of them unless given")
    parser.add_argument("--seeds", type=seed_range, default=range(1), metavar="A..B")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time; one per core")
    options = parser.parse_args()
    (script,) = entry_points(group="console_scripts", name="kelpie")
    command = script.load()
    known = sorted(json.loads(_printed(command, "list", "--json")))  # and imports all that the runs need
    runs = [(name, seed) for name in sorted(options.scenario) or known for seed in options.seeds]
    print("\n".join(lines(command, runs, max(1, options.processes))))


if __name__ == "__main__":
    main()
