"""Working memory: what is set is read back, what is over is gone for everybody at that moment, and nothing that was
told as gone comes back with a clock that goes back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.core.access.callers import Caller
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import OrganizationId, UserId
from kelpie.core.memory.working_memory import Append, EntryQuery, Increment, Merge, WorkingMemoryEntry
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.memory.working_memory import Place, WorkingMemory, find
from kelpie.storage.agents import removal as agent_removal
from kelpie.storage.memory import working_memory as rows
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.world.world import World
from tests.tools.workshop import ANN, BEN, NOBODY, NOW, open_world

SECOND = 1_000_000
STRANGER = Caller(
    UserId("user-00000000-0000-4000-8000-000000000009"), OrganizationId("org-00000000-0000-4000-8000-000000000009")
)


class Clock:
    """A clock that stands where it is put."""

    at = NOW

    def now(self) -> int:
        return self.at

    def monotonic_ns(self) -> int:
        return self.at * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def world(tmp_path: Path, clock: Clock) -> AsyncIterator[World]:
    async with open_world(tmp_path) as opened:
        yield replace(opened, clock=clock)


@pytest.fixture
def memory(world: World) -> WorkingMemory:
    return WorkingMemory(world, Settings())


async def stored(world: World) -> list[Any]:
    return await world.database.read(lambda tx: list(tx.execute(text("SELECT agent_id, key FROM working_memory"))))


@pytest.mark.parametrize("value", [None, False, 0, 1.5, "", "ünï\u2028", [], {"a": [1, {"b": None}]}, 2**63 - 1])
async def test_what_is_set_is_read_back(memory: WorkingMemory, clock: Clock, value: Any) -> None:
    made = await memory.put(ANN, "a/b", value)
    assert made == await memory.get(ANN, "a/b") == WorkingMemoryEntry("a/b", value, 1, NOW, NOW, None)
    clock.at += SECOND
    again = await memory.put(ANN, "a/b", "new", 5)
    assert (
        again
        == await memory.get(ANN, "a/b")
        == WorkingMemoryEntry("a/b", "new", 2, NOW, NOW + SECOND, NOW + 6 * SECOND)
    )
    assert await memory.delete(ANN, "a/b") == again
    for gone in (memory.get(ANN, "a/b"), memory.delete(ANN, "a/b"), memory.update(ANN, "a/b", None, 1)):
        with pytest.raises(NotFound):
            await gone


async def test_agents_and_organisations_are_apart(memory: WorkingMemory, world: World) -> None:
    await memory.put(ANN, "k", "Ann's")
    await memory.put(BEN, "k", "Ben's")
    assert (await memory.get(ANN, "k")).value == "Ann's"
    assert await memory.clear(ANN) == 1
    assert (await memory.get(BEN, "k")).value == "Ben's"
    stranger = WorkingMemory(world, Settings(), STRANGER)
    for door, agent_id in ((memory, NOBODY), (stranger, BEN)):
        for asked in (
            door.get(agent_id, "k"),
            door.page(agent_id, EntryQuery()),
            door.put(agent_id, "k", 1),
            door.update(agent_id, "k", Increment(1)),
            door.delete(agent_id, "k"),
            door.clear(agent_id),
        ):
            with pytest.raises(NotFound, match="Agent"):
                await asked
    await world.database.transact(lambda tx: agent_removal.remove(tx, BEN, 0))
    assert await stored(world) == []


async def test_an_entry_is_gone_at_its_very_end(memory: WorkingMemory, clock: Clock) -> None:
    await memory.put(ANN, "k", 1, 10)
    clock.at = NOW + 10 * SECOND - 1
    assert (await memory.get(ANN, "k")).value == 1
    clock.at += 1
    with pytest.raises(NotFound):
        await memory.get(ANN, "k")


async def test_a_tool_does_not_find_an_entry_that_is_over(memory: WorkingMemory, world: World) -> None:
    await memory.put(ANN, "k", 1, 10)
    for later_s, found in ((9, True), (10, False)):
        place = Place(ANN, NOW + later_s * SECOND)
        entry = await world.database.transact(lambda tx, place=place: find(tx, place, "k"))
        assert (entry is not None) is found


@pytest.mark.parametrize("looks", ["get", "list", "update", "delete", "clear", "put another", "sweep"])
async def test_a_clock_that_goes_back_revives_nothing(
    memory: WorkingMemory, world: World, clock: Clock, looks: str
) -> None:
    await memory.put(ANN, "k", 1, 10)
    await memory.put(ANN, "stays", 1)
    clock.at = NOW + 10 * SECOND
    match looks:
        case "get":
            await memory.get(ANN, "stays")
        case "list":
            assert [each.key for each in await memory.page(ANN, EntryQuery())] == ["stays"]
        case "update":
            assert (await memory.update(ANN, "k", Increment(5))).value == 5, "it begins anew"
            await memory.delete(ANN, "k")
        case "delete":
            await memory.delete(ANN, "stays")
        case "clear":
            assert await memory.clear(ANN) == 1
        case "put another":
            await memory.put(ANN, "other", 1)
        case _:
            await Cleanup(world, 1.0, PieceSize(), DiskUsage(Quotas(world.clock))).clean_up()
    clock.at = NOW
    with pytest.raises(NotFound):
        await memory.get(ANN, "k")


async def test_upkeep_sweeps_all_that_is_over_and_nothing_else(
    memory: WorkingMemory, world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_OLDEST", rows._OLDEST.limit(2))
    for number in range(5):
        await memory.put(ANN, f"over {number}", number, 1)
    await memory.put(BEN, "later", 1, 100)
    await memory.put(BEN, "never", 1)
    clock.at += SECOND
    await Cleanup(world, 1.0, PieceSize(), DiskUsage(Quotas(world.clock))).clean_up()
    assert sorted(await stored(world)) == [(BEN, "later"), (BEN, "never")]


async def test_versions_never_come_twice(memory: WorkingMemory) -> None:
    first = await memory.put(ANN, "k", 1)
    await memory.delete(ANN, "k")
    second = await memory.put(ANN, "k", 1)
    assert second.version > first.version
    with pytest.raises(Conflict, match=f"has version {second.version}, but you expected version {first.version}"):
        await memory.put(ANN, "k", 2, if_version=first.version)


async def test_if_version_guards_every_write(memory: WorkingMemory) -> None:
    made = await memory.put(ANN, "k", [], if_version=0)
    for write in (
        memory.put(ANN, "k", 2, if_version=0),
        memory.update(ANN, "k", Append(1), if_version=99),
        memory.delete(ANN, "k", if_version=99),
        memory.put(ANN, "other", 1, if_version=1),
    ):
        with pytest.raises(Conflict, match="if_version"):
            await write
    assert await memory.get(ANN, "k") == made
    after = await memory.update(ANN, "k", Append(1), if_version=made.version)
    assert await memory.delete(ANN, "k", if_version=after.version) == after


async def test_of_many_who_count_at_once_nobody_is_lost(memory: WorkingMemory) -> None:
    await asyncio.gather(*(memory.update(ANN, "n", Increment(1)) for _ in range(50)))
    await asyncio.gather(*(memory.update(ANN, "l", Append(number)) for number in range(50)))
    await asyncio.gather(*(memory.update(ANN, "o", Merge({str(number): number})) for number in range(50)))
    assert (await memory.get(ANN, "n")).value == 50
    assert sorted((await memory.get(ANN, "l")).value) == list(range(50))
    assert (await memory.get(ANN, "o")).value == {str(number): number for number in range(50)}
    outcomes = await asyncio.gather(
        *(memory.put(ANN, "won", number, if_version=0) for number in range(20)), return_exceptions=True
    )
    assert sum(isinstance(each, WorkingMemoryEntry) for each in outcomes) == 1


async def test_a_change_keeps_the_end_unless_it_says_otherwise(memory: WorkingMemory, clock: Clock) -> None:
    await memory.put(ANN, "n", 1, 10)
    clock.at += SECOND
    assert (await memory.update(ANN, "n", Increment(1))).expires_at == NOW + 10 * SECOND
    assert (await memory.update(ANN, "n", None, 20)).expires_at == NOW + 21 * SECOND
    kept = await memory.update(ANN, "n", None, None)
    assert (kept.value, kept.expires_at, kept.created_at, kept.updated_at) == (2, None, NOW, NOW + SECOND)


async def test_the_bounds_hold_and_what_shrinks_may_always_be_written(world: World) -> None:
    memory = WorkingMemory(
        world,
        Settings(working_memory_value_bytes_max=50, working_memory_entries_max=3, working_memory_bytes_max=80),
    )
    with pytest.raises(InvalidInput, match="value: has 52 bytes as JSON; the limit is 50"):
        await memory.put(ANN, "k", "x" * 50)
    for key in ("a", "b"):
        await memory.put(ANN, key, "x" * 30)
    with pytest.raises(InvalidInput, match="would have 98 bytes, and the limit is 80"):
        await memory.update(ANN, "c", Append("x" * 27))
    assert (await memory.put(ANN, "a", "x" * 40)).value == "x" * 40, "its old value makes room for it"
    await memory.put(ANN, "a", "x" * 30)
    await memory.put(ANN, "c", 1)
    with pytest.raises(InvalidInput, match="the limit is 3 entries"):
        await memory.put(ANN, "d", 1)
    with pytest.raises(NotFound):
        await memory.get(ANN, "d")
    small = WorkingMemory(world, Settings(working_memory_entries_max=1, working_memory_bytes_max=10))
    assert (await small.put(ANN, "a", "x" * 29)).value == "x" * 29, "it got smaller, although all is over the bound"
    with pytest.raises(InvalidInput, match="value: "):
        await small.put(ANN, "a", "x" * 30)
    await memory.put(BEN, "a", "x" * 30)


async def keys(memory: WorkingMemory, **fields: Any) -> list[str]:
    page = Page(**{"order_by": "key", "descending": False, "limit": 100, **fields.pop("page", {})})
    return [entry.key for entry in await memory.page(ANN, EntryQuery(page=page, **fields))]


async def test_lists_by_prefix_time_and_order(memory: WorkingMemory, clock: Clock) -> None:
    for number, key in enumerate(("b", "a%", "a_", "A", "ab")):
        clock.at = NOW + number * SECOND
        await memory.put(ANN, key, number)
    clock.at = NOW + 9 * SECOND
    await memory.update(ANN, "b", Increment(1))
    assert await keys(memory) == ["A", "a%", "a_", "ab", "b"]
    assert await keys(memory, prefix="a") == ["a%", "a_", "ab"]
    assert await keys(memory, prefix="a%") == ["a%"] and await keys(memory, prefix="a_") == ["a_"]
    assert await keys(memory, page={"order_by": "created_at"}) == ["b", "a%", "a_", "A", "ab"]
    assert await keys(memory, page={"order_by": "updated_at", "descending": True}) == ["b", "ab", "A", "a_", "a%"]
    assert await keys(memory, updated_after=NOW + 3 * SECOND) == ["ab", "b"]
    assert await keys(memory, created_after=NOW, created_before=NOW + 3 * SECOND) == ["a%", "a_"]
    assert await keys(memory, updated_before=NOW + 2 * SECOND) == ["a%"]


@pytest.mark.parametrize("order_by", ["key", "created_at", "updated_at"])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_cover_everything_once_in_both_directions(
    memory: WorkingMemory, clock: Clock, order_by: str, descending: bool
) -> None:
    for number in range(7):
        clock.at = NOW + number // 2 * SECOND
        await memory.put(ANN, f"k{number * 5 % 7}", number)
    order = {"order_by": order_by, "descending": descending}
    whole = await keys(memory, page=order)
    forward = list[str]()
    for _ in range(4):
        cursor = {"after": forward[-1]} if forward else {}
        forward += await keys(memory, page={**order, "limit": 2, **cursor})
    assert forward == whole
    backward = whole[-1:]
    for _ in range(3):
        backward = await keys(memory, page={**order, "limit": 2, "before": backward[0]}) + backward
    assert backward == whole
    assert await keys(memory, page={**order, "after": whole[1], "before": whole[4]}) == whole[2:4]


async def test_a_cursor_may_be_gone_in_the_order_of_keys_only(memory: WorkingMemory) -> None:
    await memory.put(ANN, "a", 1)
    await memory.put(ANN, "c", 1)
    assert await keys(memory, page={"after": "b"}) == ["c"]
    with pytest.raises(NotFound, match="b"):
        await keys(memory, page={"after": "b", "order_by": "updated_at"})
