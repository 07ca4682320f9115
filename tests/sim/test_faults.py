"""The fault gate: what fires is counted with its place, what is named and never fires is missed."""

import asyncio
import random
from dataclasses import replace

import pytest

from kelpie.sim.faults import PLACES, SIZES, Aim, Fault, Faults, swarm
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.http_client import SimClient
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.ports import uploads
from kelpie.sim.ports.clock import START, SimClock
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.runs.seed_search import search
from tests.sim import shop

# The shop takes no uploads; the scenario `file-uploads` fires what is left out here.
EVERY_PLACE = [(fault, place) for fault in Fault for place in PLACES[fault] if place != uploads.PLACE]


async def _visit_everything(machine: Machine) -> None:
    """Two clients use every route of the shop, whatever happens to them."""

    async def visit(client: SimClient) -> None:
        for route, body in (
            ("/notes", {"text": "a"}),
            ("/ask", {"text": "hello"}),
            ("/ask", {"text": "call roll {}"}),
            ("/stream", {"text": "hello, tell me a long story"}),
            ("/notes", None),
        ):
            await machine.up()
            try:
                await client.request("POST" if body else "GET", route, body)
            except ConnectionLost:
                continue

    await asyncio.gather(*(visit(machine.client(f"client-{number}")) for number in range(2)))


EVERYTHING = Scenario("everything", _visit_everything, shop.boot, shop.schema, quiet_s=30.0)


def aimed(*aims: Aim) -> Scenario:
    return replace(EVERYTHING, faults=aims)


@pytest.mark.parametrize(("fault", "place"), EVERY_PLACE, ids=lambda value: str(value))
def test_every_fault_fires_at_each_of_its_places_and_is_missed_when_disconnected(fault: Fault, place: str) -> None:
    scenario = aimed(Aim(fault, place, nth=1))
    found = search(scenario, [1])
    assert found.verdict() is None
    missed = search(scenario, [1], disconnected=[fault])
    assert missed.unfired == scenario.faults
    assert "never fired" in (missed.verdict() or "")
    assert f"{fault} at {place}" in (missed.verdict() or "")


def test_the_rate_and_the_bound_are_kept() -> None:
    loop = SimLoop(1)
    faults = Faults(loop, [Aim(Fault.clock_jump, "clock.now", rate=0.25, times_max=40)])
    fired = [faults.fires(Fault.clock_jump, "clock.now") for _ in range(100)]
    assert 10 < sum(fired) < 40
    for _ in range(1000):
        faults.fires(Fault.clock_jump, "clock.now")
    assert faults.fired(Fault.clock_jump) == 40
    assert faults.fired(Fault.clock_jump, "clock.now") == 40
    assert faults.fired(Fault.clock_skew) == 0


def test_nth_means_exactly_that_visit() -> None:
    faults = Faults(SimLoop(), [Aim(Fault.clock_jump, "clock.now", nth=3)])
    assert [faults.fires(Fault.clock_jump, "clock.now") for _ in range(6)] == [False, False, True, False, False, False]


def test_nothing_fires_in_the_quiet_period_and_what_was_cut_heals() -> None:
    faults = Faults(SimLoop(), [Aim(Fault.clock_jump, "clock.now", rate=1.0)])
    healed: list[bool] = []
    faults.at_quiet(lambda: healed.append(True))
    assert faults.fires(Fault.clock_jump, "clock.now")
    faults.quiet()
    assert not faults.fires(Fault.clock_jump, "clock.now")
    assert healed == [True]


def test_a_place_that_does_not_exist_cannot_be_named() -> None:
    with pytest.raises(ValueError, match=r"its places are .*database\.read"):
        Aim(Fault.storage_read_fail, "database.begin")


def test_swarm_leaves_each_kind_off_in_about_half_of_the_runs() -> None:
    runs = [{aim.fault for aim in swarm(random.Random(seed), Fault)} for seed in range(200)]
    for fault in (fault for fault in Fault if PLACES[fault]):
        assert 60 < sum(fault in kinds for kinds in runs) < 140
    assert len({frozenset(kinds) for kinds in runs}) > 190


def test_disconnecting_a_kind_does_not_move_the_others() -> None:
    aims = [Aim(Fault.clock_jump, "clock.now", rate=0.5), Aim(Fault.storage_read_fail, "database.read", rate=0.5)]

    def reads(*disconnected: Fault) -> list[bool]:
        faults = Faults(SimLoop(5), aims, disconnected=disconnected)
        seen: list[bool] = []
        for _ in range(50):
            faults.fires(Fault.clock_jump, "clock.now")
            seen.append(faults.fires(Fault.storage_read_fail, "database.read"))
        return seen

    assert reads() == reads(Fault.clock_jump)


def test_sizes_are_drawn_within_their_bounds() -> None:
    faults = Faults(SimLoop())
    for fault, (low, high) in SIZES.items():
        assert all(low <= faults.size(fault) <= high for _ in range(50))


def test_the_clock_is_skewed_and_jumps_while_durations_stay_right() -> None:
    async def main(loop: SimLoop) -> None:
        right = SimClock(loop, Faults(loop))
        wrong = SimClock(loop, Faults(loop, [Aim(Fault.clock_skew, "clock.boot", nth=1)]))
        assert START <= right.now() < START + 1000
        skew = wrong.now() - right.now()
        assert skew != 0 and abs(skew) <= 300 * 1_000_000
        before, began = right.now(), right.monotonic_ns()
        right.jump(-3600)
        await asyncio.sleep(60)
        assert right.now() - before == pytest.approx(-3540 * 1e6, abs=1e3)
        assert right.monotonic_ns() - began == pytest.approx(60e9, rel=1e-3)

    simulate(main).get()


def test_starvation_lets_time_pass_between_callbacks() -> None:
    calm = run(EVERYTHING, 3)
    starved = run(aimed(Aim(Fault.cpu_starvation, "cpu", rate=0.5)), 3)
    assert starved.broken is None
    lost = [firing for firing in starved.firings if firing.fault is Fault.cpu_starvation]
    assert lost and starved.virtual_s > calm.virtual_s
