"""Shares of the seeds that `make test` plays of each scenario.

Where a share begins depends on `src` as it is in the commit that is checked out: every change of the product plays
other seeds, and a commit that changes only tests or documents plays the same again.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kelpie.sim.runs.scenario import Report, Scenario, run
from kelpie.sim.runs.seed_search import Search, search
from kelpie.sim.scenarios import SCENARIOS
from kelpie.sim.scenarios.server_scenario import LISTS_EVERY
from tests.turns import first_seed

ROOT = Path(__file__).parents[2]
FURTHER = 60  # shares more at most are searched for the seed that fires a named fault; few faults need one
HASH_SEED = "4242"  # of the other process

SHARE = 4
SHARE_OF_RARE = 5
RARE = ("calls-that-wait", "api-model-of-records")  # whose named faults or kinds of records take more seeds
SHARE_OF_LONG = 3
LONG = (
    "many-agents",
    "large-agents",
    "shared-block-edits",
    "block-history",
    "two-servers-one-disk",
    "waits-that-expire",
    "working-memory-and-checkpoints",
    "restores-of-memory",
    "permissions-race-calls",
    "tools-made-anew",
)
SHARE_OF_FLOODS = 3
FLOODS = ("one-organization-floods", "one-slot-for-two-organizations")  # every run has many of each kind of job
SHARE_OF_MEMORY = 3
MEMORY = (
    "passages-under-storage-faults",
    "embedding-faults",
    "embedding-process-crashes",
    "vector-search-fails",
    "memory-crashes",
    "storage-corruption",
    "tools-in-cells",
    "code-that-calls-back",
    "limits-and-kept-results",
    "api-model-of-memory",
    "api-model-of-turns",
    "api-model-of-fields",
    "api-model-of-limits",
    "api-model-of-access",
    "web-searches-at-once",
    "mcp-clients-and-power-cuts",
    "mcp-servers-that-break",
    "mcp-programs-of-two-organizations",
    "mcp-tasks-and-restarts",
    "mcp-questions-and-crashes",
    "mcp-tools-that-change",
    "mcp-tokens-that-end",
)


def share_of(name: str) -> int:
    """How many seeds a scenario gets: every plot must have its turn."""
    shares = ((FLOODS, SHARE_OF_FLOODS), (MEMORY, SHARE_OF_MEMORY), (LONG, SHARE_OF_LONG), (RARE, SHARE_OF_RARE))
    share = next((share for names, share in shares if name in names), SHARE)
    return max(share, len(SCENARIOS[name].plots))


def first_of_share(name: str, of: str) -> int:
    """Where the share of a scenario begins for a source: one of its seeds walks over the lists at the end."""
    first = first_seed(name, of)
    walks = first - first % LISTS_EVERY
    return max(0, walks - first // LISTS_EVERY % min(share_of(name), LISTS_EVERY))


@dataclass(frozen=True)
class Share:
    """What playing a share found. `last` is beyond the share where a named fault took more seeds to fire."""

    name: str
    of: str
    first: int
    last: int
    found: Search
    trace_hash: str | None  # of the last seed of the share; None where an earlier one broke

    def verdict(self) -> str | None:
        """None when everything held and every named fault fired, else what broke and how to see it again."""
        told = self.found.verdict()
        if told is None:
            return None
        again = f"kelpie sim search --scenario {self.name} --seeds {self.first}..{self.last}"
        if self.found.broken is not None:
            again = f"kelpie sim run --scenario {self.name} --seed {self.found.broken.seed}"
        return f"{told}\nThe share begins at seed {self.first} (src {self.of}). To see it again, run:\n  {again}"


def play(scenario: Scenario, first: int, share: int, of: str) -> Share:
    """Plays a share, and more seeds for as long as a named fault has not fired, up to `FURTHER` shares."""
    unfired = set(scenario.named)
    last = first
    hashes: dict[int, str] = {}

    def seeds() -> Iterator[int]:
        yield from range(first, first + share)
        for seed in range(first + share, first + share * (1 + FURTHER)):
            if unfired.intersection(scenario.aims(seed)):
                yield seed

    def on_report(report: Report) -> None:
        nonlocal last
        last = report.seed
        hashes[last] = report.trace_hash
        unfired.difference_update(aim for aim in scenario.aims(last) if report.fired(aim.fault, aim.place))

    found = search(scenario, seeds(), on_report=on_report)
    return Share(scenario.name, of, first, last, found, hashes.get(first + share - 1))


class Elsewhere:
    """Another process, which plays what it is asked for: another PYTHONHASHSEED, locale, time zone and directory, and
    other scenarios before each."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, name: str, seed: int) -> None:
        """Has it play a seed of a scenario meanwhile."""
        assert self._process.stdin is not None
        print(name, seed, file=self._process.stdin, flush=True)

    def trace_hash(self, name: str, seed: int) -> str:
        """The trace hash of a seed that was asked for."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(f"{name} {seed} "):
                return line.split()[-1]
        raise AssertionError(f"the other process ended with {self._process.wait()} and no trace hash")


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    """Another process, which is gone at the end."""
    code = "from tests.sim.shares import answer; answer()"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": HASH_SEED,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "HOME": os.devnull,
    }
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT.anchor,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Elsewhere(process)
        finally:
            process.kill()


def answer() -> None:
    """Plays what the lines of standard input name and prints the trace hashes: the other process."""
    for line in sys.stdin:
        name, seed = line.split()
        print(name, seed, run(SCENARIOS[name], int(seed)).trace_hash, flush=True)
