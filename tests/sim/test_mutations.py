"""The simulation is able to find bugs: cutting one fault, or one propagation of an error, turns it red."""

import pytest

from kelpie.sim.faults import Fault
from kelpie.sim.scenarios import SCENARIOS
from kelpie.sim.search import search
from tests.sim.mutations import MUTATIONS, Mutation

NAMED = sorted({(name, aim.fault) for name, scenario in SCENARIOS.items() for aim in scenario.named})


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.apply.__name__)
def test_a_broken_propagation_turns_its_scenario_red(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    found = search(SCENARIOS[mutation.scenario], range(mutation.seeds)).broken
    assert found is not None, f"{mutation.seeds} seeds of {mutation.scenario} did not notice"
    assert mutation.broken in (found.broken or "")


@pytest.mark.parametrize(("name", "fault"), NAMED, ids=lambda value: str(value))
def test_a_disconnected_fault_is_missed(name: str, fault: Fault) -> None:
    scenario = SCENARIOS[name]
    missed = search(scenario, [1], disconnected=[fault]).unfired
    assert {aim.place for aim in scenario.named if aim.fault is fault} == {
        aim.place for aim in missed if aim.fault is fault
    }
