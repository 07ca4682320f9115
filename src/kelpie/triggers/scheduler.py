"""Scheduler: fires schedules when they are due, tries failed firings again, and records how each ended.

Everything is in the database, and each due time is handled in one transaction that locks its schedule, so several
servers can share the work and a crash loses nothing. The next due time decides when it looks again; between two due
times it reads nothing but that time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.actors.periodic import PeriodicWorker
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import KelpieError
from kelpie.core.ids import FiringId, JobId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.triggers.schedules import (
    ON_TIME,
    SETTLED,
    UNSETTLED_MAX,
    DueTimes,
    Firing,
    FiringStatus,
    Schedule,
    due_times,
)
from kelpie.observe import logs
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.storage.triggers import firings, schedules
from kelpie.triggers import delivery
from kelpie.triggers.delivery import Attempt
from kelpie.world.database import Tx
from kelpie.world.world import World

AT_ONCE = 16  # transactions at a time
READ = 200  # rows at a time
LOOK_S = 60.0  # longest time between two looks: another server may have stopped, or the clock was set
RUNNING_S = 15.0  # the same while runs of firings go on
MISSED = "No server was running at this time, nor at earlier ones that are not in this list."
STOP_S = 5.0  # for what is being fired when the server stops

_log = logs.get("triggers")
_T = TypeVar("_T")


class Scheduler:
    """Fires the schedules of all organizations. `batch_made` is called after it stored a batch."""

    def __init__(
        self, world: World, settings: Settings, quotas: Quotas, run_queue: RunQueue, batch_made: Callable[[], None]
    ) -> None:
        self._world = world
        self._settings = settings
        self._quotas = quotas
        self._run_queue = run_queue
        self._batch_made = batch_made
        self._worker = PeriodicWorker(self._look, failed=_report, retry_s=RUNNING_S)
        self._running = 0  # firings whose run had not ended at the last look
        self._seen: Micros | None = None  # the latest time since the clock was last set back
        self._round = asyncio.Lock()  # held while something is being fired, and from the end of the last round on
        self._finished = False

    def wake(self) -> None:
        """A schedule was made or changed."""
        self._worker.wake()

    def run_ended(self) -> None:
        """A background run or a batch has ended, which may be that of a firing."""
        if self._running:
            self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def finish_round(self) -> None:
        """Waits for what is being fired now, so that a server which stops leaves nothing half told. Nothing is fired
        after it."""
        if self._finished:
            return
        self._finished = True
        try:
            async with asyncio.timeout(STOP_S):
                await self._round.acquire()
        except TimeoutError:
            _log.warning(
                "schedules_cut_off", "Schedules were being fired when the server stopped; the next start goes on"
            )

    async def _look(self) -> float:
        """Handles everything that is due and returns the time until more is."""
        async with self._round:
            await self._follow_clock()
            now = self._now()
            read = self._world.database.read
            due = await read(lambda tx: schedules.due(tx, now, READ))
            waiting = await read(lambda tx: firings.waiting(tx, now, READ))
            ended = await read(lambda tx: firings.ended(tx, READ))
            await self._each(due, self._fire)
            await self._each(waiting, self._try_again)
            await self._each(ended, self._settle)
            if max(len(due), len(waiting), len(ended)) == READ:
                return 0.0
            return await self._pause_s()

    async def _pause_s(self) -> float:
        def read(tx: Tx) -> tuple[list[Micros], int]:
            times = (schedules.next_due(tx), firings.next_attempt(tx))
            return [at for at in times if at is not None], firings.count_running(tx)

        times, self._running = await self._world.database.read(read)
        longest = RUNNING_S if self._running else LOOK_S
        if not times:
            return longest
        return min(max(0.0, (min(times) - self._world.clock.now()) / MICROS_PER_SECOND), longest)

    async def _each(self, items: Sequence[_T], work: Callable[[_T], Awaitable[None]]) -> None:
        """Does the work for each item, a few at a time; one that fails leaves the others alone and comes again."""
        for start in range(0, len(items), AT_ONCE):
            results = await asyncio.gather(
                *(work(item) for item in items[start : start + AT_ONCE]), return_exceptions=True
            )
            failed = [result for result in results if isinstance(result, BaseException)]
            for error in failed:
                if not isinstance(error, KelpieError):
                    raise error
            if failed:
                raise failed[0]

    # --- a due schedule ------------------------------------------------------------------------------------------

    async def _fire(self, schedule: Schedule) -> None:
        now = self._now()
        if schedule.next_at is None or schedule.next_at > now:
            return  # the clock was set back
        times = due_times(schedule, now)
        planned = [(self._new(schedule, due, now, FiringStatus.waiting), self._attempt(now)) for due in times.fire]
        skipped = self._skipped(schedule, times, now)

        def write(tx: Tx) -> list[tuple[Firing, Run | None]]:
            current = schedules.find(tx, schedule.id)
            if current is None or current.next_at != schedule.next_at:
                return []  # changed, or fired by another server
            room = UNSETTLED_MAX - firings.count_unsettled(tx, schedule.id)
            tried: list[tuple[Firing, Run | None]] = []
            unsettled = 0
            for firing, attempt in planned:
                if firings.exists(tx, schedule.id, firing.due_at):
                    continue  # before the clock was set back
                after, run = self._first_attempt(tx, current, firing, attempt, room - unsettled)
                firings.insert(tx, after)
                tried.append((after, run))
                unsettled += after.status not in SETTLED
            if skipped is not None and not firings.exists(tx, schedule.id, skipped.due_at):
                firings.insert(tx, skipped)
            last_at = max((*times.fire, times.skipped or 0, current.last_at or 0))
            schedules.replace(tx, replace(current, next_at=times.next_at, last_at=last_at))
            firings.forget_old(tx, schedule.id)
            return tried

        self._tried(await self._world.database.transact(write))

    def _attempt(self, now: Micros) -> Attempt:
        return Attempt(now, self._world.ids.new(RunId), self._world.ids.new(JobId))

    def _first_attempt(
        self, tx: Tx, schedule: Schedule, firing: Firing, attempt: Attempt, room: int
    ) -> tuple[Firing, Run | None]:
        if room <= 0:
            why = f"{UNSETTLED_MAX} earlier firings of this schedule have not ended."
            return replace(firing, status=FiringStatus.skipped, error=why), None
        return delivery.deliver(tx, schedule, firing, attempt, self._quotas, self._settings)

    def _skipped(self, schedule: Schedule, times: DueTimes, now: Micros) -> Firing | None:
        """The record of times that were missed and are not made up for; one for all of them."""
        if times.skipped is None:
            return None
        return replace(self._new(schedule, times.skipped, now, FiringStatus.skipped), error=MISSED)

    def _new(self, schedule: Schedule, due: Micros, now: Micros, status: FiringStatus) -> Firing:
        return Firing(
            id=self._world.ids.new(FiringId),
            schedule_id=schedule.id,
            organization_id=schedule.organization_id,
            agent_id=schedule.agent_id,
            due_at=due,
            status=status,
            created_at=now,
            updated_at=now,
        )

    # --- a firing ------------------------------------------------------------------------------------------------

    async def _try_again(self, firing_id: FiringId) -> None:
        now = self._now()
        attempt = self._attempt(now)

        def write(tx: Tx) -> tuple[Firing, Run | None] | None:
            firing = firings.find(tx, firing_id)
            if firing is None or firing.attempt_at is None or firing.attempt_at > now:
                return None  # tried by another server
            schedule = schedules.find(tx, firing.schedule_id)
            if schedule is None:
                return None  # deleted, and the firing with it
            after, run = delivery.deliver(tx, schedule, firing, attempt, self._quotas, self._settings)
            firings.replace(tx, after)
            return after, run

        tried = await self._world.database.transact(write)
        if tried is not None:
            self._tried([tried])

    async def _settle(self, firing_id: FiringId) -> None:
        now = self._now()

        def write(tx: Tx) -> Firing | None:
            firing = firings.find(tx, firing_id)
            if firing is None or firing.status is not FiringStatus.running:
                return None
            after = delivery.settle(tx, firing, now)
            if after is not None:
                firings.replace(tx, after)
                firings.forget_old(tx, after.schedule_id)
            return after

        after = await self._world.database.transact(write)
        if after is not None and after.status is FiringStatus.dead:
            _tell_dead(after)

    def _tried(self, tried: Sequence[tuple[Firing, Run | None]]) -> None:
        """Hands on what was stored: firings with their runs, and with None for a batch."""
        for firing, run in tried:
            if firing.status is FiringStatus.dead:
                _tell_dead(firing)
            if firing.status is not FiringStatus.running:
                continue
            self._running += 1
            if run is None:
                self._batch_made()
            else:
                self._run_queue.submit(StoredRun(run.id, run.agent_id, run.conversation_id))

    # --- the clock -----------------------------------------------------------------------------------------------

    def _now(self) -> Micros:
        now = self._world.clock.now()
        self._seen = now if self._seen is None else max(now, self._seen)
        return now

    async def _follow_clock(self) -> None:
        """After the clock was set back, finds the next time of the schedules and firings that were ahead of it. What
        was fired already is not fired again: a schedule has one firing for each time."""
        now, seen = self._world.clock.now(), self._seen
        if seen is not None and now > seen - ON_TIME:
            return
        if await self._world.database.read(lambda tx: firings.are_ahead_of(tx, now)):
            await self._world.database.transact(lambda tx: firings.bring_forward(tx, now))
        after_id = ""
        while True:
            found = await self._world.database.read(lambda tx, last=after_id: schedules.ahead_of(tx, now, last, READ))
            for schedule in found:
                await self._world.database.transact(lambda tx, each=schedule: _rewind(tx, each, now))
            if len(found) < READ:
                break
            after_id = found[-1].id
        self._seen = now


def _rewind(tx: Tx, schedule: Schedule, now: Micros) -> None:
    current = schedules.find(tx, schedule.id)
    if current is None or current.recurrence is None or current.last_at != schedule.last_at:
        return
    next_at = None if current.paused else current.recurrence.next_after(now)
    last_at = None if current.last_at is None else min(current.last_at, now)
    schedules.replace(tx, replace(current, next_at=next_at, last_at=last_at))


def _tell_dead(firing: Firing) -> None:
    _log.warning(
        "firing_dead",
        "Firing of a schedule was given up; it can be queued again",
        firing_id=firing.id,
        schedule_id=firing.schedule_id,
        agent_id=firing.agent_id,
        error=firing.error,
    )


def _report(error: KelpieError) -> None:
    _log.error("schedules_failed", "Schedules could not be read or fired; trying again later", error=str(error))
