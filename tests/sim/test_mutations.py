"""The simulation is able to find bugs: cutting one fault, or one propagation of an error, turns it red.

`make test` plays a sixteenth of the planted bugs, another one with every change of `src`; `make soak` plays all of
them. They test the simulation, not the product. After a change of the simulation, play all: pytest -m '' <this file>.
"""

import re
import warnings

import pytest

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
from tests.sim.survivors import SURVIVORS, TESTED, UnitMutation
from tests.sim.trigger_mutations import TRIGGERED
from tests.sim.turn_mutations import TURNS
from tests.sim.unseen_mutations import UNSEEN
from tests.turns import in_turns

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
PARTS = 16


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


@pytest.mark.parametrize("mutation", in_turns("planted bugs", BY_NAME, PARTS))
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


def test_every_planted_bug_has_a_name() -> None:
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


@pytest.mark.parametrize("name", in_turns("planted bugs", {name: name for name in SCENARIOS}, PARTS))
def test_disconnected_faults_are_missed(name: str) -> None:
    scenario = SCENARIOS[name]
    assert search(scenario, [1], disconnected=list(Fault)).unfired == scenario.named
