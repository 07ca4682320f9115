"""`kelpie sim`: runs scenarios of the simulation. No other module of the product imports it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kelpie.cli.exit_codes import ERROR, OK
from kelpie.cli.output import counted, print_json, print_rows, say
from kelpie.core.errors import InvalidInput
from kelpie.observe import logs
from kelpie.sim.faults import Aim
from kelpie.sim.runs.scenario import Report, Scenario
from kelpie.sim.runs.scenario import run as play
from kelpie.sim.runs.seed_search import Search, search
from kelpie.sim.scenarios import SCENARIOS

SEEDS_MAX = 1_000_000  # in one search
EVENTS_MAX = 4000


class _NullStream:
    """Discards the server's log: it reports the faults that the simulation itself injects."""

    def write(self, text: str, /) -> int:
        return len(text)

    def flush(self) -> None:
        return


def list_scenarios(*, as_json: bool) -> int:
    """Prints every scenario with the faults it names and the places where they fire."""
    found = {name: _places(scenario.named) for name, scenario in SCENARIOS.items()}
    if as_json:
        print_json(found, indent=None)
        return OK
    for name, faults in found.items():
        say(name)
        for fault, places in faults.items():
            say(f"  {fault} at {', '.join(places)}")
    return OK


def run(name: str, seed: int, *, events: int, as_json: bool) -> int:
    """Runs one seed and prints the result: 1 when an invariant broke. Raises InvalidInput."""
    _silence()
    report = play(_find(name), seed)
    last = report.notes[-min(events, EVENTS_MAX) :] if events > 0 else ()
    if as_json:
        print_json(_facts(report) | {"last_events": list(last)}, indent=None)
    else:
        say(f"{report.scenario} seed {report.seed}")
        say(f"  schedule {report.policy}, {report.events} events, {report.virtual_s:.1f} virtual seconds")
        say(f"  trace hash {report.trace_hash}")
        for fault, count in _fired(report).items():
            say(f"  fired {count} times: {fault}")
        for event in last:
            say(f"    {event}")
        say(f"  broken: {report.broken}" if report.broken else "  all invariants held")
    return ERROR if report.broken else OK


def search_seeds(names: Sequence[str], seeds: str, *, broken_max: int, as_json: bool) -> int:
    """Runs a range of seeds and prints every failing one and a summary: 1 when one failed, or a named fault never
    fired.

    Raises InvalidInput.
    """
    wanted, span = [_find(name) for name in names or SCENARIOS], seed_range(seeds)
    _silence()
    found = [_search(scenario, span, broken_max, as_json=as_json) for scenario in wanted]
    if as_json:
        print_json(found, indent=None)
    else:
        print_rows(("FAULT", "POINT", "SCENARIO", "FIRED"), _table(found), "No fault fired.")
    return ERROR if any(each["broken"] or each["unfired"] for each in found) else OK


def seed_range(text: str) -> range:
    """The seeds `A..B`, both included. Raises InvalidInput."""
    first, dots, last = text.partition("..")
    if not (first.isdecimal() and dots and last.isdecimal()) or int(first) > int(last):
        raise InvalidInput("--seeds", f"expected a range such as 1..100, got '{text[:80]}'")
    if int(last) - int(first) >= SEEDS_MAX:
        raise InvalidInput("--seeds", f"a search has at most {SEEDS_MAX} seeds; split the range")
    return range(int(first), int(last) + 1)


def _search(scenario: Scenario, seeds: range, broken_max: int, *, as_json: bool) -> dict[str, Any]:
    broken: list[dict[str, Any]] = []

    def on_report(report: Report) -> None:
        advance()
        if report.broken is None:
            return
        broken.append(_facts(report))
        if not as_json:
            say(f"{report.scenario} seed {report.seed}: {report.broken} (trace hash {report.trace_hash})", flush=True)

    with counted(scenario.name, len(seeds)) as advance:
        done = search(scenario, seeds, broken_max=min(max(1, broken_max), SEEDS_MAX), on_report=on_report)
    if not as_json:
        say(_summary(done), flush=True)
    unfired = [f"{aim.fault} at {aim.place}" for aim in done.unfired]
    fired = [{"fault": str(fault), "point": place, "times": count} for (fault, place), count in done.fired.items()]
    return {"scenario": scenario.name, "runs": done.runs, "broken": broken, "unfired": unfired, "fired": fired}


def _table(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, int]]:
    """One row for every fault that fired at a point in a scenario, sorted."""
    rows = [(e["fault"], e["point"], each["scenario"], e["times"]) for each in found for e in each["fired"]]
    return sorted(rows)


def _summary(done: Search) -> str:
    text = f"{done.scenario}: {done.runs} runs, {done.broken_runs} broken"
    if done.unfired:
        text += "; never fired: " + ", ".join(f"{aim.fault} at {aim.place}" for aim in done.unfired)
    return text


def _find(name: str) -> Scenario:
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise InvalidInput("--scenario", f"there is no scenario '{name[:80]}'; use one of {', '.join(SCENARIOS)}")
    return scenario


def _facts(report: Report) -> dict[str, Any]:
    return {
        "scenario": report.scenario,
        "seed": report.seed,
        "schedule": report.policy,
        "trace_hash": report.trace_hash,
        "events": report.events,
        "virtual_s": report.virtual_s,
        "broken": report.broken,
        "fired": _fired(report),
    }


def _fired(report: Report) -> Mapping[str, int]:
    counts = Counter(f"{firing.fault} at {firing.place}" for firing in report.firings)
    return dict(sorted(counts.items()))


def _places(aims: Iterable[Aim]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for aim in aims:
        places = found.setdefault(str(aim.fault), [])
        if aim.place not in places:
            places.append(aim.place)
    return found


def _silence() -> None:
    logs.configure("error", _NullStream())
