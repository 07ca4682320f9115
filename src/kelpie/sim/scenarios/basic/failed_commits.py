"""Commits of the journal that fail, one kind after the other: inside the transaction, after it, and on a full disk.

Enumerated like the power cuts in `crashes`: run number n takes the n-th of them.
"""

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.scenarios.basic.crashes import AFTER, EveryKindOfCommit
from kelpie.sim.scenarios.server_scenario import ServerScenario, scenario

FAILS, FULL = Fault.storage_write_fail, Fault.disk_full


class FailingCommits(EveryKindOfCommit):
    """The same messages; the power may stay on."""

    async def settle(self) -> None:
        await ServerScenario.settle(self)


def _failures(kind: str, *before: Aim, nth: int = 1) -> tuple[tuple[Aim, ...], ...]:
    """Aim lists with one failure each of a kind of commit."""
    place = f"journal.{kind}"
    failures = (Aim(FAILS, place, nth=nth), Aim(FAILS, f"{place}.told", nth=nth), Aim(FULL, place, nth=nth))
    return tuple((*before, failure) for failure in failures)


FAILED_COMMITS = scenario(
    "commits-that-fail",
    FailingCommits,
    plots=(
        *_failures("open", nth=2),
        *_failures("step", nth=2),
        *_failures("reply"),
        *_failures("result", nth=2),
        *_failures("close"),
        *_failures("recover", Aim(AFTER, "outside.effect", nth=1)),
    ),
)
