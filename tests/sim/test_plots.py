"""Plots take turns by seed, and a search misses one that never had its turn or never fired."""

from kelpie.sim.faults import Aim, Fault
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.scenario import Report, Scenario
from kelpie.sim.runs.seed_search import search
from tests.sim import shop

ALWAYS = Aim(Fault.storage_latency, "database.write", rate=1.0)
PLOTS = (
    (Aim(Fault.crash_before_write, "database.begin", nth=1),),
    (Aim(Fault.crash_after_write, "database.acknowledge", nth=1), Aim(Fault.clock_skew, "clock.boot", nth=1)),
)


async def _write(machine: Machine) -> None:
    await machine.client().request("POST", "/notes", {"text": "a"})


async def _write_until_it_breaks(machine: Machine) -> None:
    await _write(machine)
    assert machine.loop.seed % 3, "every third seed is broken"


async def _survive(machine: Machine) -> None:
    for _ in range(3):
        try:
            await _write(machine)
        except ConnectionLost:  # the power was cut
            await machine.up()


SCENARIO = Scenario("plots", _survive, shop.boot, shop.schema, faults=(ALWAYS,), plots=PLOTS, quiet_s=1.0)


def test_each_run_has_the_plot_whose_turn_it_is() -> None:
    assert SCENARIO.aims(0) == (ALWAYS, *PLOTS[0]) == SCENARIO.aims(2)
    assert SCENARIO.aims(1) == (ALWAYS, *PLOTS[1])
    assert SCENARIO.named == (ALWAYS, *PLOTS[0], *PLOTS[1])


def test_a_plot_that_had_no_turn_is_missed() -> None:
    assert search(SCENARIO, range(2)).verdict() is None
    assert search(SCENARIO, [0, 2]).unfired == PLOTS[1]
    assert search(SCENARIO, range(2), disconnected=[Fault.clock_skew]).unfired == PLOTS[1][1:]


def test_a_search_goes_on_for_as_long_as_it_is_asked_to() -> None:
    scenario = Scenario("thirds", _write_until_it_breaks, shop.boot, shop.schema, quiet_s=1.0)
    told: list[Report] = []
    found = search(scenario, range(1, 10), broken_max=5, on_report=told.append)
    assert (found.runs, found.broken_runs) == (9, 3)
    assert found.broken is not None and found.broken.seed == 3
    assert [report.seed for report in told if report.broken] == [3, 6, 9]
    assert search(scenario, range(1, 10), broken_max=2).runs == 6
    assert search(scenario, range(1, 10)).runs == 3
