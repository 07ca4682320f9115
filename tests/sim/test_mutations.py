"""The simulation is able to find bugs: cutting one fault, or one propagation of an error, turns it red.

`make test` plays an eighth of the planted bugs, another one with every change of `src`; `make soak` plays all of them.
They test the simulation, not the product. After a change of the simulation, play all: pytest -m '' <this file>.
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from kelpie.sim.faults import Fault
from kelpie.sim.runs.planted_bugs import RACE_SEEDS, counting
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.runs.seed_search import search
from kelpie.sim.scenarios import SCENARIOS
from tests.sim.mcp_mutations import MCP_MUTATIONS
from tests.sim.memory_mutations import REMEMBERED
from tests.sim.model_mutations import MODELLED
from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.record_mutations import RECORDS
from tests.sim.shares import first_seed, source
from tests.sim.survivors import SURVIVORS, TESTED, UnitMutation
from tests.sim.trigger_mutations import TRIGGERED
from tests.sim.turn_mutations import TURNS
from tests.sim.unseen_mutations import UNSEEN

PLANTED = (
    *MUTATIONS,
    *SURVIVORS,
    *MODELLED,
    *MCP_MUTATIONS,
    *TRIGGERED,
    *UNSEEN,
    *RECORDS,
    *REMEMBERED,
    *TURNS,
)
BY_NAME = {f"{mutation.apply.__name__}-{mutation.scenario}": mutation for mutation in PLANTED}
PARTS = 8


def in_parts(values: Mapping[str, Any], of: str) -> list[ParameterSet]:
    """The values as parameters under their ids: those of other parts than the one whose turn it is are left to
    `make soak`."""
    turn = first_seed("planted bugs", of)
    return [
        pytest.param(value, id=name, marks=() if (at + turn) % PARTS == 0 else pytest.mark.soak)
        for at, (name, value) in enumerate(values.items())
    ]


def turns_red(mutation: Mutation, scenario: Scenario) -> None:
    """Plays the known seed, and the range only where that seed no longer notices the bug."""
    known = run(scenario, mutation.seed).broken
    if known is not None and re.search(mutation.broken, known):
        return
    found = search_range(mutation, scenario)
    warnings.warn(
        f"{mutation.apply.__name__}: seed {mutation.seed} of {scenario.name} no longer notices it ({known or 'held'}), "
        f"seed {found} does: write down {found} in tests/sim/mutations.py",
        stacklevel=2,
    )


def search_range(mutation: Mutation, scenario: Scenario) -> int:
    """The first seed that notices the bug."""
    found = search(scenario, range(mutation.seeds)).broken
    assert found is not None, f"{mutation.seeds} seeds of {scenario.name} did not notice"
    assert re.search(mutation.broken, found.broken or ""), found.broken
    return found.seed


@pytest.mark.parametrize("mutation", in_parts(BY_NAME, source()))
def test_a_broken_propagation_turns_its_scenario_red(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    turns_red(mutation, SCENARIOS[mutation.scenario])


@pytest.mark.parametrize("mutation", TESTED, ids=lambda mutation: mutation.apply.__name__)
def test_a_planted_bug_turns_its_test_red(mutation: UnitMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.test()
    mutation.apply(monkeypatch)
    with pytest.raises(AssertionError):
        mutation.test()


@pytest.mark.soak
@pytest.mark.parametrize("mutation", PLANTED, ids=lambda mutation: mutation.apply.__name__)
def test_a_broken_propagation_is_found_within_its_range(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    search_range(mutation, SCENARIOS[mutation.scenario])


def test_every_planted_bug_has_its_turn() -> None:
    """Sources whose hashes differ by one in their turn play parts that have nothing in common."""
    sources = [
        next(str(at) for at in range(100) if first_seed("planted bugs", str(at)) % PARTS == part)
        for part in range(PARTS)
    ]
    played = [each.id for of in sources for each in in_parts(BY_NAME, of) if not each.marks]
    assert sorted(map(str, played)) == sorted(BY_NAME)
    assert len(BY_NAME) == len(PLANTED)


def test_a_known_seed_that_no_longer_notices_is_replaced() -> None:
    scenario = counting(races=True)
    held = next(seed for seed in range(1000) if run(scenario, seed).broken is None)
    broken = search(scenario, range(RACE_SEEDS)).broken
    assert broken is not None
    stale = Mutation(no_change, scenario.name, held, RACE_SEEDS, "no count is lost")
    with pytest.warns(UserWarning, match=f"seed {held} .* no longer notices it .*: write down {broken.seed} "):
        turns_red(stale, scenario)
    with pytest.raises(AssertionError, match="did not notice"):
        turns_red(stale, counting(races=False))


def test_a_known_seed_that_notices_is_the_only_one_played() -> None:
    scenario = counting(races=True)
    broken = search(scenario, range(RACE_SEEDS)).broken
    assert broken is not None
    turns_red(Mutation(no_change, scenario.name, broken.seed, 0, "no count is lost"), scenario)


def no_change(_patch: pytest.MonkeyPatch) -> None:
    return


@pytest.mark.parametrize("name", in_parts({name: name for name in SCENARIOS}, source()))
def test_disconnected_faults_are_missed(name: str) -> None:
    scenario = SCENARIOS[name]
    assert search(scenario, [1], disconnected=list(Fault)).unfired == scenario.named
