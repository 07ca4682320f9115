"""Many runs: search for a seed that breaks an invariant, replay of it, and shrinking."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.runs.scenario import Report, Scenario, run


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search over seeds. `unfired` are faults the scenario names that never fired at their place."""

    scenario: str
    runs: int
    broken: Report | None  # the first of them
    unfired: tuple[Aim, ...]
    broken_runs: int = 0
    fired: Mapping[tuple[Fault, str], int] = field(default_factory=dict[tuple[Fault, str], int])  # how often, by place

    def verdict(self) -> str | None:
        """None when everything held and every named fault fired, else a sentence."""
        if self.broken is not None:
            return self.broken.text()
        if self.unfired:
            named = ", ".join(f"{aim.fault} at {aim.place}" for aim in self.unfired)
            return f"{self.scenario}: in {self.runs} runs these faults never fired: {named}"
        return None


def search(
    scenario: Scenario,
    seeds: Iterable[int],
    *,
    disconnected: Iterable[Fault] = (),
    broken_max: int = 1,
    on_report: Callable[[Report], None] = lambda report: None,
) -> Search:
    """Runs the seeds until so many have failed; `on_report` gets the report of every run as it ends."""
    disconnected = tuple(disconnected)
    unfired = list(scenario.named)
    fired: Counter[tuple[Fault, str]] = Counter()
    runs = broken_runs = 0
    first: Report | None = None
    for seed in seeds:
        report = run(scenario, seed, disconnected=disconnected)
        on_report(report)
        fired.update((firing.fault, firing.place) for firing in report.firings)
        runs += 1
        on = scenario.aims(seed)
        unfired = [aim for aim in unfired if aim not in on or not report.fired(aim.fault, aim.place)]
        if report.broken is not None:
            first = first or report
            broken_runs += 1
            if broken_runs >= broken_max:
                break
    return Search(scenario.name, runs, first, tuple(unfired), broken_runs, fired)


def replay(scenario: Scenario, report: Report) -> Report:
    """The same run again, from its tape. Raises nothing; a tape that does not fit shows as broken."""
    return run(scenario, report.seed, tape=report.tape)


def shrink(scenario: Scenario, report: Report, *, runs_max: int = 60) -> tuple[Report, tuple[Fault, ...]]:
    """A smaller run that breaks the same way: fewer kinds of fault, and FIFO order after as few picks as possible.

    Returns it with the kinds that had to be disconnected for it.
    """
    best, off, budget = report, (), runs_max
    for kind in sorted({firing.fault for firing in report.firings}):
        again = run(scenario, report.seed, tape=best.tape, strict=False, disconnected=(*off, kind))
        budget -= 1
        if _alike(again, report):
            best, off = again, (*off, kind)
    low, high = 0, len(best.tape)
    tape = best.tape
    while low < high and budget > 0:
        middle = (low + high) // 2
        again = run(scenario, report.seed, tape=tape.prefix(middle), strict=False, disconnected=off)
        budget -= 1
        if _alike(again, report):
            best, high = again, middle
        else:
            low = middle + 1
    return best, off


def _alike(one: Report, other: Report) -> bool:
    """True if both broke in the same way: the same invariant, whatever was seen."""
    return one.broken is not None and one.broken.split(":")[:2] == (other.broken or "").split(":")[:2]
