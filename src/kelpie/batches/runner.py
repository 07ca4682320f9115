"""Runner of batches: begins their items, a few at a time, and records how each ended.

Everything is in the database, and each batch is advanced in a transaction that locks it, so several servers can share
the work and a crash loses nothing. Items of one agent begin in their order.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.actors.periodic import PeriodicWorker
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.resources.conversations.conversation_opening import ISOLATED_MAX, ConversationOpening
from kelpie.batches import items
from kelpie.core.access.callers import Caller
from kelpie.core.conversations.batches import AGENTS_MAX, CANCELLED, PARALLEL, PARALLEL_MAX, BatchItem, ItemStatus
from kelpie.core.conversations.jobs import ACTIVE, Job, JobStatus
from kelpie.core.conversations.runs import UNFINISHED, Run
from kelpie.core.errors import KelpieError
from kelpie.core.ids import AgentId, JobId, OrganizationId, RunId, UserId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.observe import logs
from kelpie.storage.runs import batches, runs
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.world.database import Tx
from kelpie.world.world import World

AT_ONCE = 8  # transactions at a time
READ = 100  # batches at a time
LOOK_S = 60.0  # longest time between two looks: another server may have stopped
RUNNING_S = 5.0  # the same while there are batches: an agent may have room again, or a quota was raised
NANOS_PER_MICRO = 1000

_log = logs.get("batches")


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Ids for items that may begin, drawn before the transaction."""

    runs: tuple[RunId, ...]
    forks: tuple[ConversationOpening, ...]


class _Places:
    """How many more items of a batch may begin: five of a parallel one, otherwise one of each agent."""

    def __init__(self, *, parallel: bool) -> None:
        self._each, self._all = (PARALLEL_MAX, PARALLEL_MAX) if parallel else (1, AGENTS_MAX)
        self._taken: Counter[AgentId] = Counter()
        self._closed: set[AgentId] = set()

    def has_room(self, item: BatchItem) -> bool:
        agent_id = item.agent_id
        return agent_id not in self._closed and self._taken[agent_id] < self._each and self._taken.total() < self._all

    def take(self, item: BatchItem) -> None:
        self._taken[item.agent_id] += 1

    def close(self, item: BatchItem) -> None:
        """The agent takes nothing now."""
        self._closed.add(item.agent_id)


class BatchRunner:
    """Runs the batches of all organizations. `finished` is called after the end of one."""

    def __init__(
        self, world: World, settings: Settings, quotas: Quotas, run_queue: RunQueue, finished: Callable[[], None]
    ) -> None:
        self._world = world
        self._settings = settings
        self._quotas = quotas
        self._run_queue = run_queue
        self._finished = finished
        self._worker = PeriodicWorker(self._look, failed=_report, retry_s=RUNNING_S)
        self._has_batches = True  # until the first look says otherwise
        self._change = asyncio.Event()  # set, and replaced, when a batch has ended

    @property
    def change(self) -> asyncio.Event:
        """Set when a batch ends after now."""
        return self._change

    def wake(self) -> None:
        """A batch was made or cancelled."""
        self._worker.wake()

    def run_ended(self) -> None:
        """A background run has ended, which may be that of an item or have made room for one."""
        if self._has_batches:
            self._worker.wake()

    async def run(self) -> None:
        """Never returns."""
        await self._worker.run()

    async def _look(self) -> float:
        """Advances every batch as far as possible now and returns the longest time until the next look."""
        self._has_batches, after_id = True, ""
        seen = 0
        while True:
            found = await self._world.database.read(lambda tx, last=after_id: batches.active(tx, last, READ))
            seen += len(found)
            for start in range(0, len(found), AT_ONCE):
                await self._advance_all(found[start : start + AT_ONCE])
            if len(found) < READ:
                break
            after_id = found[-1]
        self._has_batches = seen > 0
        return RUNNING_S if seen else LOOK_S

    async def _advance_all(self, batch_ids: Sequence[JobId]) -> None:
        """One that fails leaves the others alone and comes again."""
        results = await asyncio.gather(*(self._advance(each) for each in batch_ids), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in failed:
            if not isinstance(error, KelpieError):
                raise error
        if failed:
            raise failed[0]

    async def _advance(self, batch_id: JobId) -> None:
        found = await self._world.database.read(
            lambda tx: batches.find(tx, batch_id) if _has_work(tx, batch_id) else None
        )
        if found is None:
            return
        now = self._world.clock.now()
        drawn = self._draw(*found)

        def write(tx: Tx) -> tuple[list[Run], Job | None]:
            current = batches.locked(tx, batch_id)
            if current is None or current.status not in ACTIVE:
                return [], None
            going_on = _settle(tx, batch_id, now)
            begun = self._begin(tx, current, going_on, drawn, now)
            if batches.unsettled(tx, batch_id):
                if current.status is not JobStatus.running:
                    batches.change(tx, replace(current, status=JobStatus.running, updated_at=now))
                return begun, None
            after = _finish(tx, current, now)
            return begun, after

        begun, ended = await self._world.database.transact(write)
        for run in begun:
            if run.status in UNFINISHED:
                self._run_queue.submit(StoredRun(run.id, run.agent_id, run.conversation_id))
            else:  # an item that was sent before: nothing else says that it has ended
                self.wake()
        if ended is not None:
            self._tell(ended)

    def _draw(self, job: Job, organization: OrganizationId) -> _Drawn:
        new = self._world.ids.new
        if not job.metadata.get(PARALLEL):
            return _Drawn(tuple(new(RunId) for _ in range(AGENTS_MAX)), ())
        caller = Caller(UserId(job.created_by_id or ""), organization)
        forks = tuple(ConversationOpening.draw(self._world, caller, ISOLATED_MAX) for _ in range(PARALLEL_MAX))
        return _Drawn(tuple(new(RunId) for _ in range(PARALLEL_MAX)), forks)

    def _begin(self, tx: Tx, job: Job, going_on: Sequence[BatchItem], drawn: _Drawn, now: Micros) -> list[Run]:
        """Begins the items that have their turn, in order: what waits for its agent holds up those behind it."""
        places = _places(job, going_on)
        begun: list[Run] = []
        for item in going_on:
            if item.status is not ItemStatus.waiting or not places.has_room(item):
                continue
            number = len(begun)
            fork = drawn.forks[number] if drawn.forks else None
            after, run = items.begin(tx, job, item, drawn.runs[number], fork, self._quotas, self._settings, now)
            if after.status is ItemStatus.waiting:
                places.close(item)
            if after != replace(item, updated_at=after.updated_at):
                batches.replace(tx, after)
            if run is not None:
                places.take(item)
                begun.append(run)
        return begun

    def _tell(self, job: Job) -> None:
        change, self._change = self._change, asyncio.Event()
        change.set()
        self._finished()
        _log.info("batch_ended", "Batch ended", batch_id=job.id, status=job.status.value)


def _has_work(tx: Tx, batch_id: JobId) -> bool:
    """False while all that a batch can do is wait for its runs."""
    open_items = batches.unsettled(tx, batch_id)
    running = [item for item in open_items if item.status is ItemStatus.running]
    found = {run.id: run for run in runs.get_many(tx, [item.run_id for item in running if item.run_id is not None])}
    if not open_items or any(items.settle(tx, item, found, 0) is not None for item in running):
        return True
    found_job = batches.find(tx, batch_id)
    if found_job is None:
        return False
    places = _places(found_job[0], open_items)
    return any(places.has_room(item) for item in open_items if item.status is ItemStatus.waiting)


def _places(job: Job, going_on: Sequence[BatchItem]) -> "_Places":
    places = _Places(parallel=bool(job.metadata.get(PARALLEL)))
    for item in going_on:
        if item.status is ItemStatus.running:
            places.take(item)
    return places


def _settle(tx: Tx, batch_id: JobId, now: Micros) -> list[BatchItem]:
    """Records the outcome of items whose run has ended, and returns the rest."""
    open_items = batches.unsettled(tx, batch_id)
    ids = [item.run_id for item in open_items if item.run_id is not None]
    found = {run.id: run for run in runs.get_many(tx, ids)}
    rest: list[BatchItem] = []
    for item in open_items:
        after = items.settle(tx, item, found, now) if item.status is ItemStatus.running else None
        if after is None:
            rest.append(item)
        else:
            batches.replace(tx, after)
    return rest


def _finish(tx: Tx, job: Job, now: Micros) -> Job:
    """Ends a batch all of whose items have ended; its callback is due from now on."""
    done = batches.progress(tx, job.id)
    if job.metadata.get(CANCELLED):
        status = JobStatus.cancelled
    else:
        status = JobStatus.failed if done.failed == done.total else JobStatus.completed
    counts = {"completed": done.completed, "failed": done.failed, "cancelled": done.cancelled}
    after = replace(
        job,
        status=status,
        metadata={**job.metadata, **counts},
        completed_at=now,
        total_duration_ns=max(0, now - job.created_at) * NANOS_PER_MICRO,
        updated_at=now,
    )
    batches.change(tx, after, now if job.callback_url else None)
    return after


def _report(error: KelpieError) -> None:
    _log.error("batches_failed", "Batches could not be read or advanced; trying again later", error=str(error))
