"""The real server under every kind of fault: a share of the seeds here, a thousand of each under `make soak`.

Each test asserts that every invariant held and that every fault the scenario names fired at its place.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kelpie.sim.faults import CRASHES, Fault
from kelpie.sim.runs.scenario import run
from kelpie.sim.runs.seed_search import search
from kelpie.sim.scenarios import SCENARIOS
from tests.sim.seeds import FOUND, Found

ROOT = Path(__file__).parents[2]
SHARE = 12
SHARE_OF_RARE = 20
RARE = ("calls-that-wait",)  # whose named faults take more seeds to fire
SHARE_OF_LONG = 10
LONG = (
    "many-agents",
    "shared-block-edits",
    "block-history",
    "two-servers-one-disk",
    "waits-that-expire",
    "working-memory-and-checkpoints",
    "permissions-race-calls",
    "tools-made-anew",
)
SHARE_OF_MEMORY = 6
MEMORY = (
    "passages-under-storage-faults",
    "embedding-faults",
    "vector-search-fails",
    "memory-crashes",
    "storage-corruption",
    "tools-in-cells",
    "code-that-calls-back",
    "limits-and-kept-results",
)
SOAK = tuple(range(start, start + 100) for start in range(0, 1000, 100))  # in parts, for several processes


def share_of(name: str) -> int:
    """How many seeds a scenario gets: every plot must have its turn."""
    shares = ((MEMORY, SHARE_OF_MEMORY), (LONG, SHARE_OF_LONG), (RARE, SHARE_OF_RARE))
    share = next((share for names, share in shares if name in names), SHARE)
    return max(share, len(SCENARIOS[name].plots))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_invariant_holds_and_every_named_fault_fires(name: str) -> None:
    assert search(SCENARIOS[name], range(share_of(name))).verdict() is None


@pytest.mark.soak
@pytest.mark.parametrize("seeds", SOAK, ids=lambda seeds: f"{seeds.start}..{seeds.stop - 1}")
@pytest.mark.parametrize("name", SCENARIOS)
def test_soak(name: str, seeds: range) -> None:
    assert search(SCENARIOS[name], seeds).verdict() is None


@pytest.mark.parametrize("found", FOUND, ids=lambda found: f"{found.scenario}-{found.seed}")
def test_a_seed_that_broke_once_holds_now(found: Found) -> None:
    report = run(SCENARIOS[found.scenario], found.seed)
    assert report.broken is None, f"{found.bug}\n{report.text()}"


def test_every_fault_is_named_by_some_scenario() -> None:
    named = {aim.fault for scenario in SCENARIOS.values() for aim in scenario.named}
    assert named == set(Fault)


def test_every_scenario_names_faults_and_crashes_are_at_every_journal_point() -> None:
    assert all(scenario.named for scenario in SCENARIOS.values())
    points = {(aim.fault, aim.place) for aim in SCENARIOS["crash-at-every-journal-point"].named}
    for kind in ("open", "step", "reply", "result", "recover", "close"):
        for fault in (Fault.crash_before_write, Fault.crash_after_write):
            assert (fault, f"journal.{kind}") in points
    assert {fault for fault, _ in points} == set(CRASHES)


def hashes() -> str:
    """One line per scenario; the same lines in every process."""
    return "\n".join(f"{name} {run(scenario, 7).trace_hash}" for name, scenario in SCENARIOS.items())


def test_two_processes_with_different_hash_seeds_agree() -> None:
    code = "from tests.sim.test_scenarios import hashes; print(hashes())"
    elsewhere = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    here = hashes()  # in which other runs came before
    assert elsewhere.communicate()[0].strip() == here


def test_the_documentation_names_every_scenario_and_every_fault() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    assert not [name for name in (*SCENARIOS, *Fault) if f"`{name}`" not in text]
