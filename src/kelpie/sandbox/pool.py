"""Pool of cells that were started in advance, so that a job need not wait for one.

A cell is used once and never returned. The pool is small, and the plans that were requested longest ago are dropped
first; new cells are started one after the other in the background. Cells with a writable mount are never pooled: the
directory behind such a mount may be gone by the time they are used.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from kelpie.core.errors import SandboxUnavailable
from kelpie.observe import logs
from kelpie.world.cells.port import Cell, CellPlan, Cells

WARM_PER_PLAN = 2
PLANS_MAX = 64  # that are remembered without a cell

_log = logs.get("sandbox")


@dataclass(slots=True)
class PoolCounts:
    """Counters of the pool: totals so far, and cells at present."""

    hits: int = 0
    misses: int = 0
    starting: int = 0
    warm: int = 0


class Pool:
    def __init__(self, cells: Cells, warm_max: int) -> None:
        self.counts = PoolCounts()
        self._cells = cells
        self._warm_max = warm_max
        self._warm: OrderedDict[CellPlan, list[Cell]] = OrderedDict()
        self._refill: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self, plan: CellPlan) -> Cell:
        """A fresh cell. Raises SandboxUnavailable with what is missing."""
        waiting = self._warm.get(plan, [])
        while waiting:
            cell = waiting.pop(0)
            self.counts.warm -= 1
            if cell.alive:
                self.counts.hits += 1
                self._want(plan)
                return cell
            await cell.kill()
        self.counts.misses += 1
        cell = await self._start(plan)
        self._want(plan)
        return cell

    async def close(self) -> None:
        """Ends the pooled cells."""
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
            await asyncio.wait([self._refill])
        left = [cell for waiting in self._warm.values() for cell in waiting]
        self._warm.clear()
        self.counts.warm = 0
        await asyncio.gather(*(cell.kill() for cell in left))

    def _want(self, plan: CellPlan) -> None:
        """Records a request for this plan, so that cells are started for the next one."""
        if self._closed or any(mount.writable for mount in plan.mounts):
            return
        self._warm.setdefault(plan, [])
        self._warm.move_to_end(plan)
        for old in [each for each, waiting in self._warm.items() if not waiting][:-PLANS_MAX]:
            del self._warm[old]
        if self._refill is None or self._refill.done():
            self._refill = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        try:
            while (plan := self._lacking()) is not None:
                cell = await self._start(plan)
                self._warm.setdefault(plan, []).append(cell)
                self.counts.warm += 1
                await self._give_way()
        except SandboxUnavailable as error:
            _log.warning("cell_prestart_failed", "Cell could not be started in advance", error=str(error))

    def _lacking(self) -> CellPlan | None:
        """The most recently requested plan that has too few cells and may have one more."""
        room = self._warm_max
        for plan, waiting in reversed(self._warm.items()):
            share = min(WARM_PER_PLAN, room)
            if len(waiting) < share:
                return plan
            room -= share
        return None

    async def _give_way(self) -> None:
        """Ends the cells of the plans requested longest ago, down to the limit."""
        while self.counts.warm > self._warm_max:
            plan, waiting = next(iter(self._warm.items()))
            if not waiting:
                del self._warm[plan]
                continue
            self.counts.warm -= 1
            await waiting.pop(0).kill()

    async def _start(self, plan: CellPlan) -> Cell:
        self.counts.starting += 1
        try:
            return await self._cells.start(plan)
        finally:
            self.counts.starting -= 1
