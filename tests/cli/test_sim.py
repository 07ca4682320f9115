"""`kelpie sim` in this process: what it prints, and the exit code that a script relies on."""

import json

import pytest

from kelpie.cli import main
from kelpie.cli.commands import sim
from kelpie.sim.runs.planted_bugs import RACE_SEEDS, counting
from kelpie.sim.scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def quick_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small applications beside the real ones: one that is right and one with a planted race."""
    monkeypatch.setattr(sim, "_silence", lambda: None)
    monkeypatch.setitem(SCENARIOS, "right", counting(races=False))
    monkeypatch.setitem(SCENARIOS, "racy", counting(races=True))


def broken_seed() -> int:
    return next(seed for seed in range(RACE_SEEDS) if sim.play(SCENARIOS["racy"], seed).broken)


def test_a_run_that_holds_prints_its_trace_hash_and_its_last_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sim", "run", "--scenario", "right", "--seed", "3", "--events", "2"]) == 0
    first = capsys.readouterr().out
    assert sim.play(SCENARIOS["right"], 3).trace_hash in first
    assert "all invariants held" in first and sum(line.startswith("    ") for line in first.splitlines()) == 2
    assert main.run(["sim", "run", "--scenario", "right", "--seed", "3", "--events", "2"]) == 0
    assert capsys.readouterr().out == first


def test_a_broken_run_names_the_invariant_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sim", "run", "--scenario", "racy", "--seed", str(broken_seed())]) == 1
    assert "broken: Broken: no count is lost" in capsys.readouterr().out


def test_a_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    seed = broken_seed()
    assert main.run(["sim", "run", "--scenario", "racy", "--seed", str(seed), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["scenario"], told["seed"]) == (SCENARIOS["racy"].name, seed)
    assert "no count is lost" in told["broken"] and told["last_events"] and len(told["trace_hash"]) == 32


def test_a_search_prints_every_broken_seed_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [seed for seed in range(6) if sim.play(SCENARIOS["racy"], seed).broken]
    assert len(wanted) > 1
    assert main.run(["sim", "search", "--scenario", "racy", "--seeds", "0..5"]) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    assert [int(line.split(":")[0].rpartition(" ")[2]) for line in lines] == wanted
    assert f"6 runs, {len(wanted)} broken" in summary
    assert main.run(["sim", "search", "--scenario", "racy", "--seeds", "0..5", "--broken-max", "1"]) == 1
    assert f"{wanted[0] + 1} runs, 1 broken" in capsys.readouterr().out


def test_a_search_that_finds_nothing_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sim", "search", "--scenario", "right", "--seeds", "1..4", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["broken"], told["unfired"]) == (4, [], [])


def test_a_fault_that_never_fired_fails_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sim", "search", "--scenario", "crash-at-every-journal-point", "--seeds", "0..0"]) == 1
    assert "never fired: CrashAfterWrite at journal.open" in capsys.readouterr().out


def test_the_list_names_every_scenario_and_its_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sim", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == set(SCENARIOS)
    assert told["llm-faults"]["LlmRateLimit"] == ["llm.with_retry_after", "llm.without_retry_after"]
    assert main.run(["sim", "list"]) == 0
    assert "  LlmRateLimit at llm.with_retry_after, llm.without_retry_after" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--scenario", "nothing", "--seed", "1"], "--scenario: there is no scenario 'nothing'"),
        (["search", "--seeds", "5"], "--seeds: expected a range such as 1..100, got '5'"),
        (["search", "--seeds", "5..1"], "--seeds: expected a range such as 1..100, got '5..1'"),
        (["search", "--seeds", "0..99999999"], "--seeds: a search has at most"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["sim", *arguments]) == 1
    assert told in capsys.readouterr().err
