"""A share begins at a seed of its source, waits for its faults within bounds, and says how to see a failure again."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.planted_bugs import RACE_SEEDS, counting
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.scenarios import SCENARIOS
from kelpie.sim.scenarios.server_scenario import LISTS_EVERY
from tests import turns
from tests.sim import shop
from tests.sim.shares import FURTHER, first_of_share, play, share_of
from tests.turns import FIRST_MAX, NO_SOURCE, first_seed, in_turns, on_turn

RARE = Aim(Fault.storage_latency, "database.write", rate=0.2)
NEVER = Aim(Fault.crash_before_write, "database.begin", nth=1000)


async def _write(machine: Machine) -> None:
    await machine.client().request("POST", "/notes", {"text": "a"})


def scenario(*faults: Aim) -> Scenario:
    return Scenario("rare", _write, shop.boot, shop.schema, faults=faults, quiet_s=1.0)


def test_every_source_and_every_scenario_has_its_own_first_seed() -> None:
    firsts = {first_of_share(name, of) for name in SCENARIOS for of in ("a" * 40, "b" * 40)}
    assert len(firsts) == 2 * len(SCENARIOS)
    assert all(0 <= first < FIRST_MAX for first in firsts)
    assert [first_seed(name, "a" * 40) for name in SCENARIOS] == [first_seed(name, "a" * 40) for name in SCENARIOS]


def test_without_a_commit_every_share_begins_at_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    turns.source.cache_clear()
    try:
        assert turns.source() == NO_SOURCE
    finally:
        turns.source.cache_clear()
    assert {first_of_share(name, NO_SOURCE) for name in SCENARIOS} == {0}


def test_one_seed_of_every_share_walks_over_the_lists() -> None:
    for name in SCENARIOS:
        begins = [first_of_share(name, str(at)) for at in range(50)]
        assert all(any(seed % LISTS_EVERY == 0 for seed in range(at, at + share_of(name))) for at in begins)
        assert len({at % LISTS_EVERY for at in begins}) == min(share_of(name), LISTS_EVERY), "not always as the first"


def test_a_share_depends_on_src_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "ROOT", tmp_path)
    hashes: list[str] = []
    git("init", "-q", at=tmp_path)
    for path, text in (("src/a", "one"), ("tests/a", "one"), ("docs/a", "one"), ("src/a", "two"), ("src/a", "one")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", "-A", at=tmp_path)
        git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", path, at=tmp_path)
        turns.source.cache_clear()
        hashes.append(turns.source())
    turns.source.cache_clear()
    assert hashes[0] == hashes[1] == hashes[2] == hashes[4] != hashes[3]


def test_every_part_has_its_turn() -> None:
    """Sources whose hashes differ by one in their turn run parts that have nothing in common."""
    values = {f"value-{at}": at for at in range(11)}
    sources = [next(str(at) for at in range(200) if first_seed("some", str(at)) % 4 == part) for part in range(4)]
    played = [each.id for of in sources for each in in_turns("some", values, 4, of) if not each.marks]
    assert sorted(map(str, played)) == sorted(values)


def test_of_combinations_that_take_turns_every_pair_of_values_is_in_every_turn() -> None:
    boards = list(itertools.product(range(2), range(2), range(3)))
    sources = [next(str(at) for at in range(200) if first_seed("some", str(at)) % 2 == part) for part in range(2)]
    halves = [{places for places in boards if on_turn("some", places, of)} for of in sources]
    assert halves[0] | halves[1] == set(boards) and not halves[0] & halves[1]
    for half in halves:
        for one, other in itertools.combinations(range(3), 2):
            assert len({(places[one], places[other]) for places in half}) == (4 if other < 2 else 6)


def git(*arguments: str, at: Path) -> None:
    """Runs git without the settings of this machine."""
    env = {"PATH": os.environ["PATH"], "HOME": str(at), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(("git", *arguments), cwd=at, check=True, env=env)


def test_every_plot_has_its_turn_wherever_a_share_begins() -> None:
    for name, each in SCENARIOS.items():
        first = first_of_share(name, "a" * 40)
        aims = {aim for seed in range(first, first + share_of(name)) for aim in each.aims(seed)}
        assert aims == set(each.named)


def test_a_share_goes_on_until_its_faults_have_fired() -> None:
    rare = scenario(RARE)
    silent = next(seed for seed in range(1000) if not run(rare, seed).fired(RARE.fault, RARE.place))
    fired = next(seed for seed in range(silent, 1000) if run(rare, seed).fired(RARE.fault, RARE.place))
    assert play(rare, silent, 1, NO_SOURCE).last == min(fired, silent + FURTHER)
    assert play(rare, fired, 3, NO_SOURCE).last == fired + 2


def test_a_fault_that_never_fires_ends_a_share_with_the_command_to_search_it() -> None:
    share = play(scenario(NEVER), 7, 2, NO_SOURCE)
    told = share.verdict() or ""
    assert share.found.runs == 2 * (1 + FURTHER) and "never fired: CrashBeforeWrite at database.begin" in told
    assert f"kelpie sim search --scenario rare --seeds 7..{6 + share.found.runs}" in told


def test_a_broken_seed_is_told_with_the_first_seed_and_the_command_to_run_it() -> None:
    racy = counting(races=True)
    share = play(racy, 3000, RACE_SEEDS, "c" * 40)
    assert share.found.broken is not None
    told = share.verdict() or ""
    assert "no count is lost" in told and f"begins at seed 3000 (src {'c' * 40})" in told
    assert f"kelpie sim run --scenario {racy.name} --seed {share.found.broken.seed}" in told
    assert share.trace_hash is None, "the last seed was not played"


def test_a_share_keeps_the_trace_hash_of_its_last_seed() -> None:
    share = play(counting(races=False), 3000, 3, "c" * 40)
    assert share.found.broken is None
    assert share.trace_hash == run(counting(races=False), 3002).trace_hash
