"""Cells that wait: used once, refilled behind, bounded, and never those of a mount that can be written to."""

import asyncio
from dataclasses import dataclass, field

import pytest

from kelpie.core.errors import SandboxUnavailable, ToolError
from kelpie.core.tools.confinement import Mount, Runner
from kelpie.sandbox.pool import PLANS_MAX, WARM_PER_PLAN, Pool
from kelpie.sandbox.port import UsageMeter
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.port import CellPlan, CellSockets, Order, OrderOutput
from kelpie.world.clock import SystemClock
from tests.sandbox.jobs import script

PYTHON, NODE, COMMAND = CellPlan(Runner.python), CellPlan(Runner.node), CellPlan(Runner.command)


class PlainCell:
    sockets: CellSockets | None = None

    def __init__(self, cells: "PlainCells") -> None:
        self.alive = True
        self.gone = False
        self._cells = cells

    async def run(self, order: Order) -> None:
        assert self.alive, "a cell is used once"
        self.alive = False
        await self._cells.gate.wait()

    def output(self) -> OrderOutput:
        return OrderOutput(code=0, result=b"{}", stdout=b"", stderr=b"")

    async def kill(self) -> None:
        self.alive, self.gone = False, True


@dataclass
class PlainCells:
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[tuple[CellPlan, PlainCell]] = field(default_factory=list)
    failing: bool = False
    closed: bool = False
    lacking: str | None = None
    unbounded: str | None = None

    async def start(self, plan: CellPlan) -> PlainCell:
        await asyncio.sleep(0)
        if self.failing:
            raise SandboxUnavailable("nothing here can hold code")
        cell = PlainCell(self)
        self.started.append((plan, cell))
        return cell

    async def close(self) -> None:
        self.closed = True

    def waiting(self) -> int:
        return sum(not cell.gone for _, cell in self.started)


async def refilled(pool: Pool) -> None:
    async with asyncio.timeout(60):
        assert pool._refill is not None
        await pool._refill


async def test_the_second_call_finds_a_cell_waiting() -> None:
    cells = PlainCells()
    pool = Pool(cells, 4)
    first = await pool.take(PYTHON)
    await refilled(pool)
    second = await pool.take(PYTHON)
    assert first is not second
    assert (pool.counts.misses, pool.counts.hits, pool.counts.warm) == (1, 1, WARM_PER_PLAN - 1)
    await pool.close()
    assert cells.waiting() == 2, "those that were taken are their takers'"


async def test_a_cell_that_died_while_it_waited_is_not_given_away() -> None:
    cells = PlainCells()
    pool = Pool(cells, 4)
    await pool.take(PYTHON)
    await refilled(pool)
    for _, cell in cells.started[1:]:
        cell.alive = False
    taken = await pool.take(PYTHON)
    assert taken.alive and pool.counts.misses == 2
    assert all(cell.gone for _, cell in cells.started[1:-1])
    await pool.close()


async def test_what_was_wanted_longest_ago_gives_way() -> None:
    cells = PlainCells()
    pool = Pool(cells, 3)
    for plan in (PYTHON, NODE, COMMAND):
        await pool.take(plan)
        await refilled(pool)
    kept = {plan: len(waiting) for plan, waiting in pool._warm.items()}
    assert kept[COMMAND] == 2 and kept[NODE] == 1 and kept.get(PYTHON, 0) == 0
    assert pool.counts.warm == 3
    await pool.close()
    assert pool.counts.warm == 0 and cells.waiting() == 3


async def test_cells_that_mount_something_writable_do_not_wait() -> None:
    cells = PlainCells()
    pool = Pool(cells, 4)
    await pool.take(CellPlan(Runner.python, (Mount("/workspace", "/data", writable=True),)))
    assert pool._refill is None and len(cells.started) == 1
    await pool.close()


async def test_a_pool_that_keeps_none_starts_each() -> None:
    cells = PlainCells()
    pool = Pool(cells, 0)
    await pool.take(PYTHON)
    await refilled(pool)
    await pool.take(PYTHON)
    assert (pool.counts.misses, pool.counts.warm, len(cells.started)) == (2, 0, 2)
    await pool.close()


async def test_what_a_job_had_taken_is_known_when_it_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    left = OrderOutput(code=None, result=None, stdout=b"", stderr=b"", cpu_us=7, memory_peak_bytes=9)
    monkeypatch.setattr(PlainCell, "output", lambda self: left)
    sandbox, job = ProcessSandbox(PlainCells(), SystemClock(), warm_max=0), script("pass")
    running = asyncio.create_task(sandbox.run(job))
    while sandbox.counts()["running"] < 1:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert job.meter == UsageMeter(7, 9)
    await sandbox.settled()


async def test_too_many_wait_and_are_told_so_and_no_place_is_lost() -> None:
    cells = PlainCells()
    sandbox = ProcessSandbox(cells, SystemClock(), cells_max=2, waiting_max=1, warm_max=0)
    running = [asyncio.create_task(sandbox.run(script("pass"))) for _ in range(3)]
    while sandbox.counts()["running"] < 2 or sandbox.counts()["waiting"] < 1:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    with pytest.raises(ToolError, match="the sandbox is busy"):
        await sandbox.run(script("pass"))
    cells.failing = True
    cells.gate.set()
    results = await asyncio.gather(*running, return_exceptions=True)
    assert [type(each).__name__ for each in results] == ["JobResult", "JobResult", "SandboxUnavailable"]
    cells.failing = False
    await asyncio.gather(*(sandbox.run(script("pass")) for _ in range(2)))
    await sandbox.settled()
    assert sandbox.counts()["running"] == sandbox.counts()["waiting"] == 0
    await sandbox.close()
    assert cells.closed and cells.waiting() == 0


async def test_plans_that_nobody_wants_again_are_forgotten() -> None:
    for warm_max in (0, 2):
        pool = Pool(PlainCells(), warm_max)
        for number in range(3 * PLANS_MAX):
            await (await pool.take(CellPlan(Runner.python, scratch_bytes=number))).kill()
        assert len(pool._warm) <= PLANS_MAX + 2
        await pool.close()
