"""A scenario boots, crashes, boots again, and ends with checks; what breaks is told with the way to see it again."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kelpie.core.errors import StorageError
from kelpie.core.settings.settings import Settings
from kelpie.sim.checks.client_history import History
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import ServerDown
from kelpie.sim.network.http_server import App
from kelpie.sim.ports.disk import Disk
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.scenario import Scenario, run
from kelpie.sim.runs.seed_search import search
from kelpie.world.world import World
from tests.sim import shop

SEEDS = range(10)


@dataclass(frozen=True)
class Idle:
    asgi: App
    stopped: list[str]

    async def stop(self) -> None:
        self.stopped.append("stopped")


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def _nothing(machine: Machine) -> None:
    return


def test_the_node_comes_back_after_a_crash_on_the_same_disk() -> None:
    async def body(machine: Machine) -> None:
        client = machine.client()
        kept: list[str] = []
        for number in range(3):
            kept.append((await client.request("POST", "/notes", {"text": f"note {number}"})).json()["text"])
            machine.crash()
            with pytest.raises(ServerDown):
                await client.request("GET", "/notes")
            await machine.up()
            assert (await client.request("GET", "/notes")).json() == kept
        assert machine.boots == 4
        assert len(set(kept)) == 3, "ids of another life are other ids"

    for seed in SEEDS:
        report = run(Scenario("restarts", body, shop.boot, shop.schema), seed)
        assert report.broken is None, report.text()


def test_a_boot_that_fails_is_tried_again() -> None:
    failures: list[str] = []

    async def boot(world: World, settings: Settings) -> Idle:
        if len(failures) < 3:
            failures.append("failed")
            raise StorageError("not yet")
        return Idle(_app, [])

    async def body(machine: Machine) -> None:
        assert (await machine.client().request("GET", "/")).status == 204
        assert machine.boots == 4 and machine.failures == ["StorageError: not yet"] * 3

    assert run(Scenario("slow-boot", body, boot), 1).broken is None


def test_a_node_that_never_comes_up_is_broken() -> None:
    async def boot(world: World, settings: Settings) -> Idle:
        raise StorageError("never")

    report = run(Scenario("no-boot", _nothing, boot), 1)
    assert "the node comes up" in (report.broken or "")


def test_an_orderly_stop_ends_every_run_and_one_that_hangs_is_broken() -> None:
    stopped: list[str] = []

    @dataclass(frozen=True)
    class Stuck(Idle):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    async def boot(world: World, settings: Settings) -> Idle:
        return Idle(_app, stopped)

    async def boot_stuck(world: World, settings: Settings) -> Idle:
        return Stuck(_app, stopped)

    assert run(Scenario("stops", _nothing, boot), 1).broken is None
    assert stopped == ["stopped"]
    assert "an orderly stop ends" in (run(Scenario("stuck", _nothing, boot_stuck), 1).broken or "")


def test_the_quiet_period_comes_before_the_last_words() -> None:
    async def settled(machine: Machine) -> None:
        assert machine.loop.time() > 100
        for _ in range(5):
            assert (await machine.client().request("GET", "/notes")).status == 200

    faults = (Aim(Fault.storage_read_fail, "database.read", rate=0.9),)
    report = run(Scenario("quiet", _ask_a_lot, shop.boot, shop.schema, faults, settled=settled, quiet_s=100.0), 1)
    assert report.broken is None, report.text()
    assert report.fired(Fault.storage_read_fail, "database.read") > 5


async def _ask_a_lot(machine: Machine) -> None:
    for _ in range(20):
        await machine.client().request("GET", "/notes")


def test_a_broken_check_is_told_with_the_seed() -> None:
    def check(_disk: Disk, _history: History) -> None:
        raise Broken("nothing is ever wrong", "this was")

    report = run(Scenario("checked", _nothing, shop.boot, shop.schema, checks=(check,)), 42)
    assert report.broken == "Broken: nothing is ever wrong: this was"
    assert "checked seed 42" in report.text() and "boot kelpie.1" in report.text()


def test_a_failing_body_and_a_deadlock_are_broken_runs() -> None:
    async def fails(machine: Machine) -> None:
        raise AssertionError("as expected")

    async def waits(machine: Machine) -> None:
        await asyncio.Event().wait()

    assert "AssertionError: as expected" in (run(Scenario("fails", fails), 1).broken or "")
    assert (run(Scenario("waits", waits), 1).broken or "").startswith("Deadlock")


def test_what_nobody_handled_breaks_a_run_unless_it_is_tolerated() -> None:
    async def body(machine: Machine) -> None:
        machine.loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    scenario = Scenario("bug", body)
    assert "ZeroDivisionError" in (run(scenario, 1).broken or "")
    assert run(replace(scenario, tolerates_unhandled=True), 1).broken is None


def test_a_watch_is_new_in_every_run() -> None:
    made: list[int] = []

    class Watch:
        def __init__(self) -> None:
            made.append(0)

        def __call__(self, disk: Disk) -> None:
            made[-1] += 1

    async def body(machine: Machine) -> None:
        await machine.client().request("POST", "/notes", {"text": "a"})

    scenario = Scenario("watched", body, shop.boot, shop.schema, watches=(Watch,))
    for seed in range(3):
        assert run(scenario, seed).broken is None
    assert made == [1, 1, 1]


def test_a_search_fails_when_a_named_fault_never_fired() -> None:
    scenario = Scenario("idle", _nothing, faults=(Aim(Fault.disk_full, "database.commit"),))
    verdict = search(scenario, SEEDS).verdict()
    assert verdict is not None and "DiskFull at database.commit" in verdict
