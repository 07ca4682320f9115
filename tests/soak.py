"""The long search, in portions of an hour: `make soak`, or `make soak HOURS=8`.

    python -m tests.soak                    one portion
    python -m tests.soak --hours 8          eight of them
    python -m tests.soak --minutes 5 --only seeds

A portion runs the rounds of kill -9 and of power cuts, fires very many schedules at once, kills servers in large
batches, lets agents of every type work with a real language model, watches the memory of a server, and runs one of
four groups of long tests; the rest of the hour goes to seeds of the simulation, which begin where the last portion
ended (`.soak.json` has the next seed of each scenario). At its end it prints one report: seeds per scenario, the faults
that fired and where, each new failing seed with a smaller run that fails alike, kill rounds, and the slope of memory.
The exit code is 1 when anything failed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kelpie.observe import logs
from kelpie.sim.runs.scenario import run
from kelpie.sim.runs.seed_search import shrink
from kelpie.sim.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
PROGRESS = ROOT / ".soak.json"
BATCH = 10  # seeds of one scenario that a process plays in a row
BROKEN_MAX = 5  # failing seeds of a scenario in a portion, after which it rests
MEMORY_MINUTES = 10
ROUNDS = (
    "tests/acceptance/test_kill.py",
    "tests/world/test_power_loss.py",
    "tests/acceptance/test_triggers_at_scale.py",
)
MODEL = ("tests/live/test_real_model.py",)  # alone: each worker has a model server, which needs a core and memory
MODEL_WORKERS = "2"
APART = ("test_kill.py", "test_triggers_at_scale.py", "test_long_memory.py", "test_memory.py", "test_odd_values.py")
COMBINATIONS = (  # what takes turns in `make test`
    *(
        f"tests/acceptance/{file.name}"
        for file in sorted((ROOT / "tests" / "acceptance").glob("test_*.py"))
        if file.name not in APART
    ),
    "tests/clients/test_letta_code.py",
)
GROUPS = (
    ("tests/sim/test_mutations.py",),
    (
        "tests/actors/test_schedules.py",
        "tests/memory/test_isolation.py",
        "tests/acceptance/test_long_memory.py",
        "tests/snapshots/test_snapshots.py",
    ),
    ("tests/conformance/test_hostile.py", "tests/acceptance/test_odd_values.py", "tests/server/test_heartbeat.py"),
    COMBINATIONS,
)


@dataclass(frozen=True)
class Broken:
    """A failing seed, and a smaller run that fails in the same way."""

    scenario: str
    seed: int
    broken: str
    without: tuple[str, ...]  # kinds of fault that the smaller run does not need
    picks: int  # of the schedule that it needs

    def text(self) -> str:
        smaller = f"also without {', '.join(self.without)}" if self.without else "with all its faults"
        return (
            f"{self.scenario} seed {self.seed}: {self.broken}\n"
            f"    shrunk: {smaller}, {self.picks} picks of the schedule\n"
            f"    kelpie sim run --scenario {self.scenario} --seed {self.seed}"
        )


@dataclass
class Seeds:
    """What the seeds of a portion found."""

    played: Counter[str] = field(default_factory=Counter[str])
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    fired: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    broken: list[Broken] = field(default_factory=list[Broken])

    def add(self, batch: "Seeds") -> None:
        self.played += batch.played
        for scenario, took in batch.seconds.items():
            self.seconds[scenario] += took
        for point, counts in batch.fired.items():
            self.fired[point] += counts
        self.broken += batch.broken

    def lines(self) -> Iterator[str]:
        yield f"{'scenario':45} {'seeds':>7} {'s each':>8} {'broken':>7}"
        failing = Counter(each.scenario for each in self.broken)
        for name, count in sorted(self.played.items()):
            yield f"{name:45} {count:7} {self.seconds[name] / count:8.3f} {failing[name]:7}"
        total = sum(self.seconds.values())
        yield f"{self.played.total()} seeds, {self.played.total() / total:.1f} per second of a process" if total else ""
        yield ""
        yield f"{'fault at place':60} {'fired':>8}  in scenarios"
        for point, counts in sorted(self.fired.items()):
            yield f"{point:60} {counts.total():8}  {len(counts)}: {', '.join(sorted(counts))}"
        yield ""
        yield f"{len(self.broken)} new failing seeds"
        for each in self.broken:
            yield f"  {each.text()}"


def play(scenario: str, seeds: range) -> Seeds:
    """Plays a batch of seeds; for a process of its own."""
    found, chosen = Seeds(), SCENARIOS[scenario]
    began = time.process_time()
    for seed in seeds:
        report = run(chosen, seed)
        for firing in report.firings:
            found.fired[f"{firing.fault} at {firing.place}"][scenario] += 1
        if report.broken is not None:
            smaller, without = shrink(chosen, report)
            found.broken.append(
                Broken(scenario, seed, report.broken, tuple(str(fault) for fault in without), len(smaller.tape))
            )
    found.played[scenario] = len(seeds)
    found.seconds[scenario] = time.process_time() - began
    return found


def play_until(deadline: float, first: dict[str, int], names: Iterable[str]) -> Seeds:
    """Plays batches of all scenarios in turn until a moment of `time.monotonic`. `first` has the next seed of each and
    is moved on; a scenario plays one batch at least."""
    found, names, at = Seeds(), list(names), 0
    with ProcessPoolExecutor(initializer=_silence) as pool:
        pending: set[Future[Seeds]] = set()
        while True:
            failing = Counter(each.scenario for each in found.broken)
            while len(pending) < (os.cpu_count() or 1) and (at < len(names) or time.monotonic() < deadline):
                name = names[at % len(names)]
                at += 1
                if failing[name] >= BROKEN_MAX:
                    if all(failing[each] >= BROKEN_MAX for each in names):
                        break
                    continue
                seeds = range(first.get(name, 0), first.get(name, 0) + BATCH)
                first[name] = seeds.stop
                pending.add(pool.submit(play, name, seeds))
            if not pending:
                return found
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for batch in done:
                found.add(batch.result())


def _silence() -> None:
    logs.configure("error", _Nowhere())


class _Nowhere:
    def write(self, text: str, /) -> int:
        return len(text)

    def flush(self) -> None:
        return


def run_tests(paths: Iterable[str], workers: str = "auto") -> str | None:
    """Runs the long tests of some files; None when they passed, else the end of what pytest said."""
    command = (sys.executable, "-m", "pytest", "-q", "-m", "soak", "-n", workers, *paths)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output", flush=True)
    return None if done.returncode == 0 else done.stdout[-6000:]


def memory_slopes() -> dict[str, float]:
    """How much a server's memory grows, in kB per 1,000 turns, with one agent and with many."""
    command = (sys.executable, "bench/loop.py", "--only", "memory", "--minutes", str(MEMORY_MINUTES))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["memory"]
    return {name: found[name]["kb_per_1000_turns"] for name in ("one_agent", "many_agents")}


def portion(number: int, minutes: float, parts: Iterable[str], names: Iterable[str]) -> bool:
    """Runs one portion and prints its report; True when nothing failed."""
    deadline, parts = time.monotonic() + minutes * 60, set(parts)
    failures: dict[str, str] = {}
    for part, paths in (("rounds", ROUNDS), ("model", MODEL), ("tests", GROUPS[number % len(GROUPS)])):
        for path in paths if part in parts else ():
            print(f"{path}: ", end="", flush=True)
            if told := run_tests([path], MODEL_WORKERS if part == "model" else "auto"):
                failures[path] = told
    slopes = memory_slopes() if "memory" in parts else {}
    progress: dict[str, int] = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    seeds = play_until(deadline, progress, names) if "seeds" in parts else Seeds()
    progress["portions"] = number + 1
    PROGRESS.write_text(json.dumps(progress, indent=1, sort_keys=True))
    print(f"\n== portion {number}, {minutes:g} minutes")
    for line in seeds.lines() if "seeds" in parts else ():
        print(line)
    for name, slope in slopes.items():
        print(f"memory, {name}: {slope:+.0f} kB per 1,000 turns")
    for path, told in failures.items():
        print(f"\n{path} failed:\n{told}")
    return not seeds.broken and not failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--hours", type=int, default=1, help="portions")
    parser.add_argument("--minutes", type=float, default=60.0, help="of one portion")
    parser.add_argument("--only", nargs="*", default=["rounds", "model", "tests", "memory", "seeds"], metavar="PART")
    parser.add_argument("--scenario", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS), metavar="NAME")
    asked = parser.parse_args()
    held = True
    for _ in range(asked.hours):
        number = json.loads(PROGRESS.read_text()).get("portions", 0) if PROGRESS.exists() else 0
        held = portion(number, asked.minutes, asked.only, asked.scenario) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
