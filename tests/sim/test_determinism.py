"""The same seed is the same run: in one process, in two, and whatever PYTHONHASHSEED is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kelpie.sim.faults import Fault
from kelpie.sim.runs.planted_bugs import logging
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.scenarios import SCENARIOS as PRODUCT
from tests.sim import shop
from tests.sim.test_faults import _visit_everything

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3, 4, 5, 6)
SCENARIOS = (
    Scenario("swarm", _visit_everything, shop.boot, shop.schema, swarm=tuple(Fault), quiet_s=30.0),
    logging(forgets=False),
)


def hashes() -> str:
    """One line per run; the same lines in every process."""
    return "\n".join(
        f"{scenario.name} {seed} {report.trace_hash} {report.events} {len(report.firings)} {report.broken}"
        for scenario in SCENARIOS
        for seed in SEEDS
        for report in [run(scenario, seed)]
    )


def test_two_processes_with_different_hash_seeds_agree() -> None:
    def elsewhere(hash_seed: str) -> str:
        code = "from tests.sim.test_determinism import hashes; print(hashes())"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    first, second = elsewhere("1"), elsewhere("4242")
    assert first == second
    assert first == hashes(), "and with this process, in which other runs came before"
    assert first == hashes(), "and once more"


@pytest.mark.parametrize("name", ["vector-search-fails", "memory-crashes"])
def test_nothing_in_memory_outlives_a_run(name: str) -> None:
    """Seed 29 once found the text index of the run before it in memory, and its connection accepted damaged texts."""
    first = run(PRODUCT[name], 29).trace_hash
    run(PRODUCT["storage-corruption"], 0)
    assert run(PRODUCT[name], 29).trace_hash == first


def test_another_seed_is_another_run() -> None:
    lines = hashes().splitlines()
    assert len({line.split()[2] for line in lines}) == len(lines)


def test_faults_fire_in_these_runs() -> None:
    fired = {firing.fault for seed in SEEDS for firing in run(SCENARIOS[0], seed).firings}
    assert len(fired) >= 8, fired
