"""SimDatabase keeps the contract of the port, and loses exactly what a power cut loses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from sqlalchemy import text

from kelpie.core.errors import CommitUnknown, DiskFull, Overloaded, StorageError
from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.errors import Broken
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node
from kelpie.sim.loop.schedules import Fifo
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.ports.database import SimDatabase
from kelpie.sim.ports.disk import Disk, schema_image
from tests.contract.database import (
    CONTRACT,
    Clause,
    a_cancelled_caller_does_not_undo_what_was_accepted,
    a_write_whose_caller_is_gone_is_in_doubt,
    close_finishes_what_was_accepted_and_refuses_the_rest,
    create,
    increment,
    put,
    stored,
)

T = TypeVar("T")

# These take for granted that `sleep(0)` lets every new task start, which only FIFO order promises.
FIFO_ONLY = (
    a_cancelled_caller_does_not_undo_what_was_accepted,
    a_write_whose_caller_is_gone_is_in_doubt,
    close_finishes_what_was_accepted_and_refuses_the_rest,
)
SEEDS = range(12)
IMAGE = schema_image(create)


def play(
    body: Callable[[SimDatabase, Node, Disk], Awaitable[T]],
    *aims: Aim,
    seed: int = 0,
    disk: Disk | None = None,
    loop: SimLoop | None = None,
    waiting_max: int = 10_000,
) -> T:
    """Runs a body, which belongs to no node, against a database of a node."""

    async def main(loop: SimLoop) -> T:
        node, used = Node("n"), disk or Disk(IMAGE)
        faults = Faults(loop, aims)
        database = node.context().run(lambda: SimDatabase(used, faults, node, waiting_max=waiting_max))
        result = await body(database, node, used)
        for aim in aims:
            assert faults.fired(aim.fault, aim.place), f"{aim.fault} never fired at {aim.place}"
        return result

    return simulate(main, loop or SimLoop(seed)).get()


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_contract(clause: Clause) -> None:
    async def body(database: SimDatabase, _node: Node, _disk: Disk) -> None:
        await clause(database)

    play(body, disk=Disk(), loop=SimLoop(policy=Fifo()))
    if clause not in FIFO_ONLY:
        for seed in SEEDS:
            play(body, disk=Disk(), seed=seed)


async def _write_some(database: SimDatabase, node: Node, disk: Disk) -> list[int]:
    """The node writes ten rows one after the other; returns what it was told before it died."""
    told: list[int] = []

    async def work() -> None:
        for number in range(10):
            told.append(await database.transact(put(number)))

    running = asyncio.get_running_loop().create_task(work(), context=node.context())
    dying = asyncio.ensure_future(node.died.wait())
    await asyncio.wait((running, dying), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(10)
    assert not running.done(), "the node was not cut off"
    return told


def _rows(disk: Disk) -> list[int]:
    return [number for (number,) in disk.query("SELECT id FROM contract_rows ORDER BY id")]


@pytest.mark.parametrize("nth", [1, 4, 10])
@pytest.mark.parametrize(
    ("fault", "place", "kept"),
    [
        (Fault.crash_before_write, "database.begin", False),
        (Fault.crash_during_transaction, "database.statement", False),
        (Fault.crash_during_transaction, "database.commit", False),
        (Fault.crash_after_write, "database.acknowledge", True),
    ],
)
def test_a_power_cut_keeps_what_was_committed_and_nothing_else(fault: Fault, place: str, kept: bool, nth: int) -> None:
    for seed in SEEDS:
        disk = Disk(IMAGE)
        told = play(_write_some, Aim(fault, place, nth=nth), seed=seed, disk=disk)
        assert told == list(range(nth - 1)), "everyone before the cut was told, nobody after it"
        assert _rows(disk) == list(range(nth if kept else nth - 1))
        disk.close()


def test_a_restart_on_the_same_disk_sees_the_committed_state() -> None:
    disk = Disk(IMAGE)
    play(_write_some, Aim(Fault.crash_after_write, "database.acknowledge", nth=3), disk=disk)

    async def read(database: SimDatabase, _node: Node, _disk: Disk) -> list[int]:
        await database.transact(put(100))
        return await database.read(stored)

    assert play(read, disk=disk) == [0, 1, 2, 100]


def test_a_full_disk_is_told_and_nothing_is_lost() -> None:
    async def body(database: SimDatabase, _node: Node, disk: Disk) -> None:
        results = await asyncio.gather(*(database.transact(put(n)) for n in range(30)), return_exceptions=True)
        failed = [n for n, result in enumerate(results) if isinstance(result, DiskFull)]
        assert failed, "somebody met the full disk"
        assert _rows(disk) == [n for n in range(30) if n not in failed]

    for seed in SEEDS:
        play(body, Aim(Fault.disk_full, "database.statement", rate=0.2), seed=seed)


def test_a_failing_write_is_told_and_leaves_nothing() -> None:
    async def body(database: SimDatabase, _node: Node, disk: Disk) -> None:
        with pytest.raises(StorageError):
            await database.transact(put(1))
        assert _rows(disk) == []
        assert await database.transact(put(2)) == 2
        assert _rows(disk) == [2]

    for place in ("database.begin", "database.statement", "database.commit"):
        play(body, Aim(Fault.storage_write_fail, place, nth=1))


def test_a_lost_answer_to_the_commit_is_an_unknown_outcome() -> None:
    async def body(database: SimDatabase, _node: Node, disk: Disk) -> None:
        with pytest.raises(CommitUnknown):
            await database.transact(put(1))
        assert _rows(disk) == [1]

    play(body, Aim(Fault.storage_write_fail, "database.acknowledge", nth=1))


def test_a_lost_group_is_replayed_one_by_one() -> None:
    async def body(database: SimDatabase, _node: Node, disk: Disk) -> None:
        assert await asyncio.gather(*(database.transact(put(n)) for n in range(10))) == list(range(10))
        assert _rows(disk) == list(range(10))
        assert disk.commits == 10

    play(body, Aim(Fault.disk_full, "database.commit", nth=1))


def test_writes_that_wait_together_share_a_commit() -> None:
    async def body(database: SimDatabase, _node: Node, disk: Disk) -> int:
        await asyncio.gather(*(database.transact(put(n)) for n in range(50)))
        return disk.commits

    assert play(body) < 10


def test_a_failing_read_is_told() -> None:
    async def body(database: SimDatabase, _node: Node, _disk: Disk) -> None:
        with pytest.raises(StorageError):
            await database.read(stored)
        assert await database.read(stored) == []

    play(body, Aim(Fault.storage_read_fail, "database.read", nth=1))


def test_latency_takes_virtual_time_and_changes_nothing_else() -> None:
    async def body(database: SimDatabase, _node: Node, _disk: Disk) -> float:
        await database.transact(put(1, "0"))
        for _ in range(20):
            await database.transact(increment)
        assert await database.read(lambda tx: tx.scalar(text("SELECT text FROM contract_rows"))) == "20"
        return asyncio.get_running_loop().time()

    slow = (
        Aim(Fault.storage_latency, "database.write", rate=1.0),
        Aim(Fault.storage_latency, "database.read", rate=1.0),
    )
    assert play(body) < 1
    assert play(body, *slow) > 3


def test_the_queue_is_bounded() -> None:
    async def body(database: SimDatabase, _node: Node, _disk: Disk) -> None:
        results = await asyncio.gather(*(database.transact(put(n)) for n in range(7)), return_exceptions=True)
        assert sum(isinstance(result, Overloaded) for result in results) == 2
        assert await database.transact(put(100)) == 100

    play(body, waiting_max=5)


def test_a_watcher_sees_every_commit_and_ends_the_run_when_something_is_broken() -> None:
    async def main(loop: SimLoop) -> None:
        disk, node = Disk(IMAGE), Node("n")

        def watch(seen: Disk) -> None:
            if len(_rows(seen)) > 2:
                raise Broken("at most two rows", str(_rows(seen)))

        disk.watch(watch)
        database = SimDatabase(disk, Faults(loop), node)
        for number in range(10):
            await database.transact(put(number))

    error = simulate(main).error
    assert isinstance(error, Broken)
    assert error.seen == "[0, 1, 2]"


def test_a_disk_made_on_a_returned_connection_holds_nothing_of_the_last_one() -> None:
    disk = Disk(IMAGE)
    put(1)(disk.connection)
    disk.connection.commit()
    assert _rows(disk) == [1]
    disk.close()
    assert _rows(Disk(IMAGE)) == []


def test_a_read_that_writes_fails_and_leaves_nothing() -> None:
    async def body(database: SimDatabase, _node: Node, _disk: Disk) -> list[int]:
        with pytest.raises(StorageError, match="readonly"):
            await database.read(put(1))
        return await database.read(stored)

    assert play(body) == []
