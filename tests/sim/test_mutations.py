"""The simulation is able to find bugs: cutting one fault, or one propagation of an error, turns it red."""

import re

import pytest

from kelpie.sim.faults import Fault
from kelpie.sim.runs.seed_search import search
from kelpie.sim.scenarios import SCENARIOS
from tests.sim.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.apply.__name__)
def test_a_broken_propagation_turns_its_scenario_red(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    found = search(SCENARIOS[mutation.scenario], range(mutation.seeds)).broken
    assert found is not None, f"{mutation.seeds} seeds of {mutation.scenario} did not notice"
    assert re.search(mutation.broken, found.broken or "")


@pytest.mark.parametrize("name", SCENARIOS)
def test_disconnected_faults_are_missed(name: str) -> None:
    scenario = SCENARIOS[name]
    assert search(scenario, [1], disconnected=list(Fault)).unfired == scenario.named
