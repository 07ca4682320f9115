"""One loaded handler and the jobs that run on it, one per lane.

It starts and ends jobs; it decides neither which job comes next nor what an outcome means for the actor.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kelpie.actors.mailbox import Job
from kelpie.core.errors import InvariantBroken, KelpieError
from kelpie.fairness.processor_time import current_usage
from kelpie.observe import logs

H = TypeVar("H")
log = logs.get("actors")


@dataclass(slots=True, eq=False)
class RunningJob(Generic[H]):
    job: Job[H]
    task: asyncio.Task[Any]


class Activation(Generic[H]):
    __slots__ = ("_cut", "_empty", "_ended", "_key", "handler", "running")

    def __init__(self, key: str, handler: H, ended: Callable[["Activation[H]", BaseException | None], None]) -> None:
        self.handler = handler
        self.running: dict[str, RunningJob[H]] = {}
        self._key = key
        self._ended = ended
        self._cut: KelpieError | None = None
        self._empty: asyncio.Event | None = None

    def start(self, job: Job[H]) -> None:
        """Runs the job in a task of its own, in its submitter's context; its lane must be free."""
        if job.lane in self.running:
            raise InvariantBroken(f"{self._key}: two jobs at once in lane {job.lane}")
        loop = asyncio.get_running_loop()
        task = loop.create_task(_run(job.work, self.handler), context=job.context)
        self.running[job.lane] = running = RunningJob(job, task)
        # A callback sees the end because a task that is cancelled before its first step never runs a line of its own.
        task.add_done_callback(lambda _: self._done(running))

    def cut(self, cause: KelpieError) -> None:
        """Cancels the running jobs; their callers get the cause."""
        self._cut = self._cut or cause
        for running in self.running.values():
            running.task.cancel()

    async def finish(self, grace_s: float, cancel_s: float, cause: Callable[[], KelpieError]) -> None:
        """Waits for the running jobs, then cancels them, then gives up on them: never longer than the two bounds."""
        await self._emptied(grace_s)
        if self.running:
            self.cut(cause())
            await self._emptied(cancel_s)
        for running in list(self.running.values()):
            log.error(
                "cancelled_job_abandoned",
                "Cancelled job did not stop in time and was abandoned",
                key=self._key,
                lane=running.job.lane,
                waited_s=cancel_s,
            )
            running.job.reply.fail(self._cut or cause(), self._key)

    async def _emptied(self, within_s: float) -> None:
        if not self.running or within_s <= 0:
            return
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return  # the caller looks at `running` itself

    def _done(self, running: RunningJob[H]) -> None:
        job, task = running.job, running.task
        del self.running[job.lane]
        if self._empty is not None and not self.running:
            self._empty.set()
        if task.cancelled():
            error = self._cut or InvariantBroken(f"{self._key}: a job ended as cancelled, but nobody cancelled it")
        else:
            error = task.exception()
        if error is None:
            job.reply.succeed(task.result())
        elif not (job.reply.done() and error is self._cut):
            job.reply.fail(error, self._key)
        self._ended(self, error)


async def _run(work: Callable[[H], Awaitable[Any]], handler: H) -> Any:
    if (usage := current_usage()) is not None:
        return await usage.measure(_call(work, handler))
    return await work(handler)


async def _call(work: Callable[[H], Awaitable[Any]], handler: H) -> Any:
    return await work(handler)
