"""Plants changes one after the other, each in a fork, and runs the tests that reach it until one fails.

With `--sim` it plays the seeds of the simulation's scenarios that reach it instead.
"""

import argparse
import ast
import gc
import importlib
import json
import logging
import os
import random
import re
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

import pytest

from tests.mutants.changes import Mutant, mutants, read
from tests.mutants.patches import patched
from tests.mutants.planted import Planted
from tests.mutants.recorder_file import RECORDED, Reached, reached
from tests.mutants.source import ROOT, SOURCE, load_changed

_TESTS_MAX = 150
_OUTCOMES = {0: "SURVIVED", 1: "noticed", 5: "NO TEST"}
_SCENARIO = re.compile(r"tests/sim/test_scenarios\.py::test_every_invariant_holds_and_every_named_fault_fires\[(.*)\]")


def main() -> None:
    """The command."""
    options = _options()
    known = reached()
    chosen = [patched(Path(file)) for file in options.patch] + _named(options.only)
    chosen = chosen or _sample(options.paths, options.sample, options.seed)
    _import_foreign()
    with ExitStack() as files:
        _plant(options, known, chosen, files.enter_context(Path(options.out).open("a")) if options.out else None)


def _plant(options: argparse.Namespace, known: Reached, chosen: Sequence[Planted], out: TextIO | None) -> None:
    counts: dict[str, int] = defaultdict(int)
    running: dict[int, tuple[Planted, float, Path]] = {}
    waiting = list(reversed(chosen))
    while waiting or running:
        while waiting and len(running) < options.jobs:
            planted = waiting.pop()
            tests, seconds = _tests(known, planted, options)
            if not tests:
                counts["NO TEST"] += 1
                _tell(planted, "NO TEST", "", out)
                continue
            output = RECORDED / f"mutant-{os.getpid()}-{planted.name.replace('/', '.')}.txt"
            child = _fork(planted, tests, output, options.seconds if options.sim else None)
            running[child] = (planted, time.monotonic() + 60 + 15 * seconds, output)
        time.sleep(0.02)
        for child, (planted, deadline, output) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            outcome = None
            if done:
                code = os.waitstatus_to_exitcode(status)
                outcome = _OUTCOMES.get(code, f"noticed ({code})")
            elif time.monotonic() > deadline:
                outcome = "noticed (it hangs)"
            if outcome is None:
                continue
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not done:
                os.waitpid(child, 0)
            del running[child]
            counts[outcome] += 1
            _tell(planted, outcome, _failure(output), out)
            if not options.keep:
                output.unlink(missing_ok=True)
    total = sum(counts.values())
    missed = counts["SURVIVED"] + counts["NO TEST"]
    print(f"{total - missed} of {total} noticed; " + ", ".join(f"{key}: {counts[key]}" for key in sorted(counts)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="modules or folders below src/kelpie")
    parser.add_argument("--sample", type=int, default=20, help="how many changes, at most one on a line")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", action="append", default=[], help="a change by its name, as printed: path#number")
    parser.add_argument("--seconds", type=float, default=12.0, help="of tests that are run for one change, at most")
    parser.add_argument("--tests", action="append", default=[], help="run these tests, and not the recorded ones")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", help="a file to which each outcome is added as a line of JSON")
    parser.add_argument("--patch", action="append", default=[], help="plant what this unified diff changes in src")
    parser.add_argument("--sim", action="store_true", help="play scenarios that reach the place instead of tests")
    parser.add_argument("--keep", action="store_true", help="keep the output of the tests")
    return parser.parse_args()


def _sample(paths: Sequence[Path], most: int, seed: int) -> list[Planted]:
    found: dict[tuple[Path, int], list[Planted]] = defaultdict(list)
    for top in paths:
        for path in sorted(top.resolve().rglob("*.py")) if top.is_dir() else [top.resolve()]:
            for at, mutant in enumerate(mutants(ast.parse(path.read_bytes()))):
                found[path, mutant.line].append(_planted(path, at, mutant))
    chance = random.Random(seed)
    lines = sorted(found)
    chance.shuffle(lines)
    return [chance.choice(found[line]) for line in lines[:most]]


def _named(names: Sequence[str]) -> list[Planted]:
    planted = []
    for name in names:
        file, _, at = name.partition("#")
        path = SOURCE / file
        planted.append(_planted(path, int(at), read(path)[1][int(at)]))
    return planted


def _planted(path: Path, at: int, mutant: Mutant) -> Planted:
    functions = (mutant.function,) if mutant.function else None
    where = f"line {mutant.line} in {mutant.function or 'the module'}: {mutant.text()}"
    return Planted(f"{path.relative_to(SOURCE)}#{at}", where, ((path, functions),), lambda: {path: read(path, at)[0]})


def _tests(known: Reached, planted: Planted, options: argparse.Namespace) -> tuple[list[str], float]:
    """The tests that reach the place, those that reach the least first, of all files in turn.

    For the simulation: the scenarios that reach it.
    """
    if options.tests:
        return list(options.tests), 60.0
    by_file: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    for test in known.reaching(planted.numbers()):
        by_file[test.name.partition("::")[0]].append((test.size, test.name, test.seconds))
    for tests in by_file.values():
        tests.sort()
    if options.sim:
        found = (_SCENARIO.fullmatch(name) for tests in by_file.values() for _, name, _ in tests)
        return [match[1] for match in found if match], options.seconds
    files = sorted(by_file.values(), key=lambda tests: tests[0])
    chosen: list[str] = []
    total = 0.0
    for row in zip_longest(*files):
        for test in row:
            if test is None or len(chosen) >= _TESTS_MAX or (chosen and total + test[2] > options.seconds):
                continue
            chosen.append(test[1])
            total += test[2]
    return chosen, total


def _import_foreign() -> None:
    """What is imported here is there in every fork.

    Not the private modules: who imports `_asyncio` before `asyncio` gets two that do not know each other's tasks.
    """
    for name in json.loads((RECORDED / "imports.json").read_text()):
        if not re.match(r"(_|pytest|xdist|execnet|_hypothesis)", name):
            with suppress(Exception):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _fork(planted: Planted, tests: Sequence[str], output: Path, sim_s: float | None) -> int:
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(ROOT)

    trees = planted.trees()
    load_changed(lambda path, _: trees.get(path))
    code = 3
    try:
        if sim_s is not None:
            code = _play(tests, sim_s)
        else:
            code = int(
                pytest.main(["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line", "-m", "", *tests])
            )
    finally:
        sys.stdout.flush()
        os._exit(code)


def _play(scenarios: Sequence[str], seconds: float) -> int:
    """Plays the shares of `make test` until a seed breaks: the first seed of each scenario, then the second ones."""
    scenario = importlib.import_module("kelpie.sim.runs.scenario")
    known = importlib.import_module("kelpie.sim.scenarios").SCENARIOS
    shares, turns = map(importlib.import_module, ("tests.sim.shares", "tests.turns"))
    logging.disable()
    end = time.process_time() + seconds
    for at in range(max(map(shares.share_of, scenarios))):
        for name in scenarios:
            if at < shares.share_of(name) and time.process_time() < end:
                seed = shares.first_of_share(name, turns.source()) + at
                report = scenario.run(known[name], seed)
                if report.broken is not None:
                    print(f"FAILED {name} {seed}: {report.broken}")
                    return 1
    return 0


def _failure(output: Path) -> str:
    found = re.findall(r"^(?:FAILED|ERROR) (.*)$", output.read_text(errors="replace"), re.MULTILINE)
    return found[0][:200] if found else ""


def _tell(planted: Planted, outcome: str, failure: str, out: TextIO | None) -> None:
    print(f"{outcome:9} {planted.name} {planted.where}" + (f"\n          {failure}" if failure else ""), flush=True)
    if out is not None:
        row = {"name": planted.name, "where": planted.where, "outcome": outcome, "test": failure}
        print(json.dumps(row), file=out, flush=True)


if __name__ == "__main__":
    main()
