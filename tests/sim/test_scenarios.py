"""The real server under every kind of fault: a share of the seeds here, many more under `make soak`.

Where a share begins depends on the source (tests/sim/shares.py), and a failure says which seed that was. Each test
asserts that every invariant held and that every fault the scenario names fired at its place.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kelpie.sim.faults import CRASHES, Aim, Fault, places_of
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.scenarios import SCENARIOS
from tests.sim.seeds import FOUND, Found
from tests.sim.shares import HASH_SEED, Elsewhere, elsewhere, first_of_share, play, share_of
from tests.turns import in_turns, source

ROOT = Path(__file__).parents[2]
ELSEWHERE = {each.id for each in in_turns("elsewhere", {name: name for name in SCENARIOS}, 6) if not each.marks}
ALONE_MAX = 5  # runs with one kind of fault, in which it fires


@pytest.fixture(scope="module")
def other() -> Iterator[Elsewhere]:
    with elsewhere() as process:
        yield process


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_invariant_holds_and_every_named_fault_fires(name: str, other: Elsewhere) -> None:
    """In a sixth of the scenarios, another one with every change of `src`, the last seed of the share is also played in
    another process (tests/sim/shares.py)."""
    first = first_of_share(name, source())
    last = first + share_of(name) - 1
    if name in ELSEWHERE:
        other.ask(name, last)
    played = play(SCENARIOS[name], first, share_of(name), source())
    there = other.trace_hash(name, last) if name in ELSEWHERE else played.trace_hash
    assert (told := played.verdict()) is None, told
    assert played.trace_hash == there, _told_apart(name, last)


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_depends_on_its_scenario_and_seed_alone(name: str, other: Elsewhere) -> None:
    """It gives the trace that it gives in another process after other scenarios."""
    seed = first_of_share(name, source())
    other.ask(name, seed)
    assert run(SCENARIOS[name], seed).trace_hash == other.trace_hash(name, seed), _told_apart(name, seed)


def _told_apart(name: str, seed: int) -> str:
    return (
        f"Seed {seed} of {name} is another run with PYTHONHASHSEED={HASH_SEED}, or after other runs. "
        "Where these two print the same trace hash, an earlier run of the process reaches into it:\n"
        f"  PYTHONHASHSEED={HASH_SEED} kelpie sim run --scenario {name} --seed {seed}\n"
        f"  PYTHONHASHSEED=1 kelpie sim run --scenario {name} --seed {seed}"
    )


@pytest.mark.parametrize("found", in_turns("found seeds", {f"{each.scenario}-{each.seed}": each for each in FOUND}, 4))
def test_a_seed_that_broke_once_holds_now(found: Found) -> None:
    report = run(SCENARIOS[found.scenario], found.seed)
    assert report.broken is None, f"{found.bug}\n{report.text()}"


def test_every_fault_is_named_by_some_scenario_at_each_of_its_places() -> None:
    """A search misses a fault that is named and never fires at its place."""
    named = {(aim.fault, aim.place) for scenario in SCENARIOS.values() for aim in scenario.named}
    declared = {(fault, place) for fault in Fault for place in places_of(fault)}
    assert not declared - named


@pytest.mark.long
def test_everything_at_once_can_fire_every_kind() -> None:
    scenario = SCENARIOS["everything-at-once"]
    assert {fault for fault, _ in scenario.points} == set(Fault)
    missing = set(Fault) - _fired(scenario, set(Fault), 0.05, 0)
    for fault in sorted(missing):
        assert any(_fired(scenario, {fault}, 0.5, seed) for seed in range(ALONE_MAX)), f"{fault} does not fire"


def _fired(scenario: Scenario, kinds: set[Fault], rate: float, seed: int) -> set[Fault]:
    """The kinds that fire in a run in which only these are on, wherever the scenario has them."""
    aims = tuple(Aim(kind, place, rate=rate, times_max=2) for kind, place in scenario.points if kind in kinds)
    return {firing.fault for firing in run(replace(scenario, swarm=(), faults=aims), seed).firings}


def test_a_kind_that_several_scenarios_depend_on_is_in_several() -> None:
    scenarios = {
        fault: {name for name, each in SCENARIOS.items() if any(kind is fault for kind, _ in each.points)}
        for fault in Fault
    }
    assert not [fault for fault, names in scenarios.items() if len(names) < 2]


def test_every_scenario_names_faults_and_crashes_are_at_every_journal_point() -> None:
    assert all(scenario.named for scenario in SCENARIOS.values())
    points = {(aim.fault, aim.place) for aim in SCENARIOS["crash-at-every-journal-point"].named}
    for kind in ("open", "step", "reply", "result", "recover", "close"):
        for fault in (Fault.crash_before_write, Fault.crash_after_write):
            assert (fault, f"journal.{kind}") in points
    assert {fault for fault, _ in points} == set(CRASHES)


def test_the_documentation_names_every_scenario_and_every_fault() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    assert not [name for name in (*SCENARIOS, *Fault) if f"`{name}`" not in text]
