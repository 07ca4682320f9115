"""What any adapter of the `Database` port must do. A clause is a coroutine over a fresh, empty database.

An adapter joins by running every clause of CONTRACT on its own event loop. Clauses use no threads and no wall time, so
the simulator can run them too.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, bindparam, insert, select, update

from kelpie.core.errors import Conflict, StorageError
from kelpie.world.database import Database, Tx

_metadata = MetaData()
rows = Table("contract_rows", _metadata, Column("id", Integer, primary_key=True), Column("text", Text, nullable=False))
_INSERT = insert(rows)
_ALL = select(rows.c.id).order_by(rows.c.id)
_VALUE = select(rows.c.text).where(rows.c.id == bindparam("wanted"))
_SET = update(rows).where(rows.c.id == bindparam("wanted")).values(text=bindparam("value"))

Clause = Callable[[Database], Awaitable[None]]


class Refused(Exception):
    """What a transaction function raises on purpose."""


def create(tx: Tx) -> None:
    _metadata.create_all(tx)


def put(number: int, text: str = "") -> Callable[[Tx], int]:
    """A transaction that adds a row and returns its number."""

    def fn(tx: Tx) -> int:
        tx.execute(_INSERT, {"id": number, "text": text})
        return number

    return fn


def put_then_refuse(number: int) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        put(number)(tx)
        raise Refused(str(number))

    return fn


def increment(tx: Tx) -> int:
    value = int(tx.scalar(_VALUE, {"wanted": 1}) or "0") + 1
    tx.execute(_SET, {"wanted": 1, "value": str(value)})
    return value


def stored(tx: Tx) -> list[int]:
    return list(tx.scalars(_ALL))


async def a_commit_is_visible_to_every_later_read(database: Database) -> None:
    await database.transact(create)
    for number in range(20):
        assert await database.transact(put(number)) == number
        seen = await asyncio.gather(*(database.read(stored) for _ in range(6)))
        assert seen == [list(range(number + 1))] * 6


async def what_the_function_raised_comes_back_and_nothing_is_written(database: Database) -> None:
    await database.transact(create)
    with pytest.raises(Refused, match="7"):
        await database.transact(put_then_refuse(7))
    assert await database.read(stored) == []
    await database.transact(put(8))
    assert await database.read(stored) == [8]


async def a_failure_takes_nobody_else_with_it(database: Database) -> None:
    await database.transact(create)
    work = [database.transact(put_then_refuse(n) if n % 3 == 0 else put(n)) for n in range(60)]
    results = await asyncio.gather(*work, return_exceptions=True)
    for number, result in enumerate(results):
        if number % 3 == 0:
            assert isinstance(result, Refused) and str(result) == str(number)
        else:
            assert result == number
    assert await database.read(stored) == [n for n in range(60) if n % 3]


async def increments_are_never_lost(database: Database) -> None:
    await database.transact(create)
    await database.transact(put(1, "0"))
    values = await asyncio.gather(*(database.transact(increment) for _ in range(100)))
    assert sorted(values) == list(range(1, 101))
    assert await database.read(lambda tx: tx.scalar(_VALUE, {"wanted": 1})) == "100"


async def a_broken_constraint_is_a_conflict(database: Database) -> None:
    await database.transact(create)
    await database.transact(put(1))
    results = await asyncio.gather(*(database.transact(put(n)) for n in (1, 2, 1, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [Conflict, int, Conflict, int]
    assert await database.read(stored) == [1, 2, 3]


async def a_function_may_handle_a_failed_statement_in_a_savepoint(database: Database) -> None:
    def put_twice(tx: Tx) -> str:
        put(1)(tx)
        try:
            with tx.begin_nested():
                put(1)(tx)
        except Exception:  # noqa: BLE001 - every adapter has its own class of error here
            put(2)(tx)
            return "handled"
        return "not refused"

    await database.transact(create)
    results = await asyncio.gather(database.transact(put(10)), database.transact(put_twice), database.transact(put(11)))
    assert results == [10, "handled", 11]
    assert await database.read(stored) == [1, 2, 10, 11]


async def a_read_sees_one_moment(database: Database) -> None:
    """Two rows are always added together, so no read may see an odd number of them."""

    def put_two(tx: Tx) -> None:
        count = len(stored(tx))
        put(count)(tx)
        put(count + 1)(tx)

    def counted_twice(tx: Tx) -> tuple[int, int]:
        return len(stored(tx)), len(stored(tx))

    await database.transact(create)
    work: list[Awaitable[object]] = []
    for _ in range(40):
        work += [database.transact(put_two), database.read(counted_twice)]
    results = await asyncio.gather(*work)
    for pair in results[1::2]:
        assert isinstance(pair, tuple)
        assert pair[0] == pair[1] and pair[0] % 2 == 0


async def a_failing_read_is_told_and_the_next_one_works(database: Database) -> None:
    def refuse(tx: Tx) -> None:
        stored(tx)
        raise Refused("read")

    await database.transact(create)
    for _ in range(10):
        with pytest.raises(Refused):
            await database.read(refuse)
    await database.transact(put(1))
    assert [await database.read(stored) for _ in range(10)] == [[1]] * 10


async def a_read_must_not_write(database: Database) -> None:
    await database.transact(create)
    with pytest.raises(StorageError):
        await database.read(put(1))
    assert await database.read(stored) == []


async def a_cancelled_caller_does_not_undo_what_was_accepted(database: Database) -> None:
    await database.transact(create)
    tasks = [asyncio.ensure_future(database.transact(put(n))) for n in range(10)]
    await asyncio.sleep(0)  # every task has now handed its function over
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == [1, 3, 5, 7, 9]
    await database.transact(put(10))
    assert await database.read(stored) == list(range(11))


async def a_write_whose_caller_is_gone_is_in_doubt(database: Database) -> None:
    told = asyncio.Event()
    database.when_in_doubt(told.set)
    await database.transact(create)
    with pytest.raises(Refused):
        await database.transact(put_then_refuse(1))
    refused = asyncio.ensure_future(database.transact(put_then_refuse(2)))
    await asyncio.sleep(0)
    refused.cancel()
    await asyncio.gather(refused, return_exceptions=True)
    await database.transact(put(3))
    assert not told.is_set(), "they know how it ended, or it came to nothing"
    gone = asyncio.ensure_future(database.transact(put(4)))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    async with asyncio.timeout(20):
        await told.wait()
    assert await database.read(stored) == [3, 4]


async def close_finishes_what_was_accepted_and_refuses_the_rest(database: Database) -> None:
    await database.transact(create)
    tasks = [asyncio.ensure_future(database.transact(put(n))) for n in range(50)]
    reads = [asyncio.ensure_future(database.read(stored)) for _ in range(50)]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*tasks) == list(range(50))
    assert all(isinstance(seen, list) for seen in await asyncio.gather(*reads))
    with pytest.raises(StorageError):
        await database.transact(put(99))
    with pytest.raises(StorageError):
        await database.read(stored)
    await database.close()


CONTRACT: tuple[Clause, ...] = (
    a_commit_is_visible_to_every_later_read,
    what_the_function_raised_comes_back_and_nothing_is_written,
    a_failure_takes_nobody_else_with_it,
    increments_are_never_lost,
    a_broken_constraint_is_a_conflict,
    a_function_may_handle_a_failed_statement_in_a_savepoint,
    a_read_sees_one_moment,
    a_failing_read_is_told_and_the_next_one_works,
    a_read_must_not_write,
    a_cancelled_caller_does_not_undo_what_was_accepted,
    a_write_whose_caller_is_gone_is_in_doubt,
    close_finishes_what_was_accepted_and_refuses_the_rest,
)
