"""One key: its mailbox, its activation while it has one, and the tasks that load and unload it.

At most one of loader and ender works on an actor at a time: the ender first ends the loader. Between them nothing runs
for an actor, so a loaded idle one costs memory only. Decisions are synchronous: no await between a check and an act.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from kelpie.actors.activation import Activation
from kelpie.actors.actor_state import ActorState
from kelpie.actors.environment import ActorEnvironment
from kelpie.actors.failure import text_of
from kelpie.actors.loader import load
from kelpie.actors.mailbox import Job, Mailbox
from kelpie.actors.reply import Reply
from kelpie.actors.shutdown import ShutdownMode, cause
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import (
    ActivationFailed,
    AgentStopped,
    CallerError,
    Fenced,
    InvariantBroken,
    KelpieError,
    StorageError,
)
from kelpie.observe import logs

H = TypeVar("H")
T = TypeVar("T")
log = logs.get("actors")


class Actor(Generic[H]):
    __slots__ = (
        "_ender",
        "_environment",
        "_loader",
        "_mailbox",
        "_notes",
        "_reason",
        "_settled",
        "_wish",
        "activation",
        "condition",
        "key",
    )

    def __init__(self, key: str, environment: ActorEnvironment[H], settled: Callable[["Actor[H]"], None]) -> None:
        self.key = key
        self.condition = ActorState(key, environment)
        self.activation: Activation[H] | None = None
        self._environment = environment
        self._settled = settled  # called when the actor has neither a handler nor work
        self._mailbox: Mailbox[H] = Mailbox()
        self._loader: asyncio.Task[None] | None = None
        self._ender: asyncio.Task[None] | None = None
        self._wish = ShutdownMode.none
        self._reason = ""  # of the wish
        self._notes: list[Callable[[H], None]] = []

    def accept(self, lane: str, work: Callable[[H], Awaitable[T]], token: object = None) -> Reply[T]:
        """Starts or queues a job. Raises MailboxFull, or AgentStopped while the actor is being stopped."""
        if self._wish is ShutdownMode.stop:
            raise AgentStopped(f"{self.key} is being stopped. Start it before sending messages.")
        limits, live = self._environment.limits, self.activation
        reply: Reply[T] = Reply(asyncio.get_running_loop(), next(self._environment.numbers))
        job = Job(lane, work, reply, copy_context(), token)
        if live and self._ender is None and lane not in live.running and len(live.running) < limits.lanes_max:
            self._start(live, job)
        else:
            self._mailbox.put(job, limits.mailbox_size, limits.retry_after_s)
            if live is None and self._loader is None and self._ender is None:
                self._begin_loading()
        return reply

    def kept_by(self, lane: str) -> list[object]:
        """The tokens of the running and waiting jobs of a lane, in order."""
        running = self.activation.running.get(lane) if self.activation else None
        jobs = [*([running.job] if running else ()), *self._mailbox.of_lane(lane)]
        return [job.token for job in jobs]

    def notify(self, note: Callable[[H], None]) -> bool:
        """Calls `note` with the handler: now, or once it is loaded and before any job. False when there is none."""
        if self.activation is not None:
            note(self.activation.handler)
        elif self.condition.state is ActivationState.loading:
            self._notes.append(note)
            if len(self._notes) > self._environment.limits.mailbox_size:
                self._notes.clear()
                self.drop(InvariantBroken("its data kept changing while it was loading"))
        else:
            return False
        return True

    def drop(self, error: BaseException) -> None:
        """Discards a broken handler; waiting jobs are kept, and the next use loads it again when that is due."""
        if self.activation is None:
            if self.condition.state is ActivationState.loading:
                self.condition.spoilt = error
            return
        if self._wish is ShutdownMode.none:
            self.condition.fail(error)
            self.end(ShutdownMode.reload, text_of(error), self._environment.limits.drain_s)
        if isinstance(error, Fenced):  # whatever else runs here can commit nothing any more
            self.cut()

    def evict(self, reason: str) -> None:
        """Unloads an idle actor."""
        self.end(ShutdownMode.release, reason, 0)

    def end(self, wish: ShutdownMode, reason: str, grace_s: float) -> asyncio.Task[None]:
        """Ends the activation in the given mode; the returned task ends when that is done."""
        if wish > self._wish:
            self._wish, self._reason = wish, reason
            if wish is not ShutdownMode.reload and self.condition.state not in (
                ActivationState.unloaded,
                ActivationState.stopping,
            ):
                self.condition.move(ActivationState.stopping, reason)
            if wish >= ShutdownMode.stop:
                self._fail_waiting(self._cause())
        if self._ender is None:
            if self._loader is not None:
                self._loader.cancel()
            self._environment.places.fell_busy(self)
            self._environment.places.leaving(self.key)
            self._ender = self._spawn(self._unload(grace_s), "end")
        return self._ender

    def cut(self) -> None:
        """Cancels the running jobs."""
        if self.activation is not None:
            self.activation.cut(self._cause())

    def _start(self, live: Activation[H], job: Job[H]) -> None:
        if self.condition.state is ActivationState.loaded:
            self._environment.places.fell_busy(self)
            self.condition.move(ActivationState.running)
        live.start(job)

    def _advance(self, live: Activation[H]) -> None:
        """Starts every job that can start; without any work, the actor is idle."""
        while self._mailbox.waiting and len(live.running) < self._environment.limits.lanes_max:
            job = self._mailbox.take(live.running)
            if job is None:
                break
            self._start(live, job)
        if not live.running:
            if self.condition.state is ActivationState.running:
                self.condition.move(ActivationState.loaded)
            self._environment.places.fell_idle(self, self._environment.size(live.handler))

    def _job_ended(self, live: Activation[H], error: BaseException | None) -> None:
        if live is not self.activation:
            return  # it was left behind when its activation ended
        if error is None:
            if self._wish is ShutdownMode.none:
                self.condition.recover()
        elif isinstance(error, StorageError):  # the handler may no longer mirror what is stored
            self.drop(error)
        if self._ender is None:
            self._advance(live)

    def _begin_loading(self) -> None:
        if self.condition.state is ActivationState.stopped:
            self.condition.move(ActivationState.unloaded, "used again")
        if self.condition.wait_s() == 0:
            self._environment.places.take_now(self.key)
        self._loader = self._spawn(self._load(), "load")

    async def _load(self) -> None:
        try:
            handler = await load(self._environment, self.condition)
        except (CallerError, ActivationFailed) as error:
            self._loader = None
            self._not_loaded(error)
        else:
            self._loader = None
            self._loaded(handler)

    def _loaded(self, handler: H) -> None:
        self.activation = live = Activation(self.key, handler, self._job_ended)
        self.condition.move(ActivationState.loaded)
        notes, self._notes = self._notes, []
        try:
            for note in notes:
                note(handler)
        except (
            Exception
        ) as error:  # whatever a note raised, the handler has only part of the change and cannot be trusted
            log.exception(
                "actor_update_failed",
                "Actor could not apply a change that arrived while it was loading; unloading it",
                key=self.key,
            )
            self.condition.spoilt = error
        if self.condition.spoilt is not None:
            self.drop(self.condition.spoilt)
        else:
            self._advance(live)

    def _not_loaded(self, error: CallerError | ActivationFailed) -> None:
        if self.condition.state is ActivationState.loading:  # the key was refused, which is no failure
            after = ActivationState.stopped if isinstance(error, AgentStopped) else ActivationState.unloaded
            self.condition.recover()
            self.condition.move(ActivationState.stopping, text_of(error))
            self.condition.move(after, text_of(error))
        self._environment.places.give_back(self.key)
        self._notes.clear()
        self._fail_waiting(error)
        self._settled(self)

    async def _unload(self, grace_s: float) -> None:
        limits = self._environment.limits
        if self._loader is not None:
            await asyncio.wait([self._loader], timeout=limits.cancel_s)
            self._loader = None
        if self.activation is not None:
            await self.activation.finish(grace_s, limits.cancel_s, self._cause)
            await self._environment.unload(self.key, self.activation.handler)
        self._finish_unload()

    def _finish_unload(self) -> None:
        wish, self._wish, self._ender, self.activation = self._wish, ShutdownMode.none, None, None
        self._notes.clear()
        if wish is not ShutdownMode.reload:
            self.condition.recover()
            after = ActivationState.stopped if wish is ShutdownMode.stop else ActivationState.unloaded
            if self.condition.state is not after:
                self.condition.move(after, self._reason)
        self._environment.places.give_back(self.key)
        if self._mailbox.waiting:
            self._begin_loading()
        else:
            self._settled(self)

    def _cause(self) -> KelpieError:
        return cause(self._wish, self._reason, self.condition, self._environment.limits.retry_after_s)

    def _fail_waiting(self, error: KelpieError) -> None:
        for job in self._mailbox.clear():
            job.reply.fail(error, self.key)

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{what} {self.key}")
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: asyncio.Task[None]) -> None:
        """Handles a bug in a loader or an ender: it costs the key its jobs, but never the key itself."""
        if task.cancelled() or (bug := task.exception()) is None:
            return
        log.error(
            "actor_failed",
            "Actor failed; its waiting jobs failed with it",
            key=self.key,
            task=task.get_name(),
            exc_info=bug,
        )
        self.cut()
        self._loader, self._ender, self.activation, self._wish = None, None, None, ShutdownMode.none
        self._environment.places.give_back(self.key)
        self._fail_waiting(InvariantBroken(f"{self.key}: {text_of(bug)}"))
        self._settled(self)
