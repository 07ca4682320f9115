"""The simulation finds planted bugs within a stated number of seeds, and finds none in the right versions."""

import pytest

from kelpie.sim.runs.planted_bugs import LOST_WRITE_SEEDS, RACE_SEEDS, counting, logging
from kelpie.sim.runs.scenario import run
from kelpie.sim.runs.seed_search import replay, search, shrink

STARTS = (0, 1000, 2000, 3000, 4000)


@pytest.mark.parametrize("start", STARTS)
def test_the_race_is_found(start: int) -> None:
    found = search(counting(races=True), range(start, start + RACE_SEEDS)).broken
    assert found is not None
    assert "no count is lost" in (found.broken or "")


@pytest.mark.parametrize("start", STARTS)
def test_the_lost_write_is_found(start: int) -> None:
    found = search(logging(forgets=True), range(start, start + LOST_WRITE_SEEDS)).broken
    assert found is not None
    assert "linearizable" in (found.broken or "")


def test_the_right_versions_hold() -> None:
    assert search(counting(races=False), range(40)).verdict() is None
    assert search(logging(forgets=False), range(60)).verdict() is None


def test_the_lost_write_needs_the_power_cut() -> None:
    scenario = logging(forgets=True)
    crashes = [aim.fault for aim in scenario.faults]
    assert search(scenario, range(30), disconnected=crashes).broken is None


@pytest.mark.parametrize("scenario", [counting(races=True), logging(forgets=True)], ids=lambda each: each.name)
def test_what_was_found_is_replayed_from_its_tape_and_shrunk(scenario: object) -> None:
    found = search(scenario, range(RACE_SEEDS * 2)).broken  # type: ignore[arg-type]
    assert found is not None
    again = replay(scenario, found)  # type: ignore[arg-type]
    assert (again.trace_hash, again.broken) == (found.trace_hash, found.broken)
    smaller, disconnected = shrink(scenario, found)  # type: ignore[arg-type]
    assert smaller.broken is not None
    assert sum(map(bool, smaller.tape.picks)) <= sum(map(bool, found.tape.picks))
    assert len(smaller.firings) <= len(found.firings)
    same = run(scenario, found.seed, tape=smaller.tape, disconnected=disconnected)  # type: ignore[arg-type]
    assert (same.trace_hash, same.broken) == (smaller.trace_hash, smaller.broken)
