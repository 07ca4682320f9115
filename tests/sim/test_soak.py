"""The report of a soak: what was played, what fired, and each failing seed with a smaller run."""

import json
from pathlib import Path

import pytest

from kelpie.sim.runs.planted_bugs import counting
from kelpie.sim.scenarios import SCENARIOS
from tests import soak

SEEDS = range(20)


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> str:
    scenario = counting(races=True)
    monkeypatch.setitem(SCENARIOS, scenario.name, scenario)
    return scenario.name


def test_a_failing_seed_is_shrunk_and_named_with_its_command(racing: str) -> None:
    found = soak.play(racing, SEEDS)
    assert found.played == {racing: len(SEEDS)} and found.broken
    text = "\n".join(found.lines())
    first = found.broken[0]
    assert f"kelpie sim run --scenario {racing} --seed {first.seed}" in text
    assert f"{len(found.broken)} new failing seeds" in text and "picks of the schedule" in text


def test_a_portion_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(soak, "PROGRESS", tmp_path / "progress.json")
    name = "disk-full-in-a-commit-group"
    monkeypatch.setattr(soak, "BATCH", 1)
    for portion in range(2):
        assert soak.portion(portion, 0.0, ["seeds"], [name])
    assert json.loads((tmp_path / "progress.json").read_text()) == {name: 2, "portions": 2}
