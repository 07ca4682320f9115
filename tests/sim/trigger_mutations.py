"""Planted bugs in projects, schedules, webhooks, batches, imports and dashboard sessions, each with its seed.

`tests/sim/mutations.py` describes how they are used.
"""

import asyncio
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import bindparam, select

from kelpie.accounts import authentication
from kelpie.accounts.sessions import Sessions
from kelpie.agent.resources.projects import Projects
from kelpie.batches import items as batch_items
from kelpie.batches import runner as batch_runner
from kelpie.batches.batches import Batches, RepeatableRequest
from kelpie.core.conversations.batches import ItemStatus
from kelpie.core.conversations.jobs import JobStatus
from kelpie.core.errors import NotFound, StorageError
from kelpie.core.files.files import FileStatus
from kelpie.core.ids import HookId, ProjectId
from kelpie.core.triggers.schedules import DueTimes, Firing, FiringStatus, MissedPolicy, Schedule, after_failure
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.agents import projects as project_rows
from kelpie.storage.files import files as file_rows
from kelpie.storage.runs import batches as batch_rows
from kelpie.storage.runs import callbacks
from kelpie.storage.tables import files as file_table
from kelpie.storage.triggers import firings as firing_rows
from kelpie.storage.triggers import schedules as schedule_rows
from kelpie.triggers import delivery, scheduled_batch, scheduler, webhooks
from kelpie.triggers.scheduler import Scheduler
from kelpie.triggers.schedules import Schedules
from tests.sim.mutations import Mutation

# --- projects --------------------------------------------------------------------------------------------------------


def a_home_project_that_goes_is_told_to_no_live_agent(patch: pytest.MonkeyPatch) -> None:
    original = Projects.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._live_agents = SimpleNamespace(reload=lambda _: None)

    patch.setattr(Projects, "__init__", init)


def a_deleted_project_stays_the_home_of_its_agents(patch: pytest.MonkeyPatch) -> None:
    """As if the agent that is being added, or moved, were not looked for again in the transaction of the deletion."""

    async def delete(self: Any, project: Any) -> None:
        await self._world.database.transact(lambda tx: project_rows.delete(tx, project.id))

    patch.setattr(Projects, "_delete_project", delete)


def an_agent_leaves_its_project_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """A write that fails in between leaves the deletion of a project half done."""

    async def delete(self: Any, project: Any) -> None:
        now, transact = self._world.clock.now(), self._world.database.transact
        members = await self._world.database.read(lambda tx: project_rows.members(tx, self._organization, project.id))
        await transact(lambda tx: project_rows.delete(tx, project.id))
        homeless = tuple(member.agent_id for member in members if member.home)
        for agent_id in homeless:
            await transact(lambda tx, each=agent_id: agent_rows.update_agent(tx, each, {"project_id": None}, now))
        self._live_agents.reload(homeless)

    patch.setattr(Projects, "_delete_project", delete)


def an_agent_that_leaves_its_home_stays_where_it_was_added(patch: pytest.MonkeyPatch) -> None:
    async def remove(self: Any, project_id: str, agent_id: Any) -> None:
        now = self._world.clock.now()

        def write(tx: Any) -> None:
            if agent_rows.owned(tx, self._organization, agent_id).project_id == project_id:
                agent_rows.update_agent(tx, agent_id, {"project_id": None}, now)
            elif not project_rows.remove(tx, ProjectId(project_id), agent_id):
                raise NotFound("Agent of the project", agent_id)

        await self._world.database.transact(write)
        self._live_agents.reload((agent_id,))

    patch.setattr(Projects, "remove", remove)


# --- schedules -------------------------------------------------------------------------------------------------------


def a_firing_that_was_heard_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    original = delivery.settle

    def settle(tx: Any, firing: Firing, now: int) -> Firing | None:
        after = original(tx, firing, now)
        again = after is not None and after.status in (FiringStatus.dead, FiringStatus.done) and firing.attempts < 2
        return after_failure(firing, "again", now, counted=True) if again else after

    patch.setattr(scheduler.delivery, "settle", settle)


def a_turn_that_failed_after_its_first_step_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    original = delivery.settle

    def settle(tx: Any, firing: Firing, now: int) -> Firing | None:
        after = original(tx, firing, now)
        again = after is not None and "failed after 1 steps" in (after.error or "")
        return after_failure(firing, "again", now, counted=True) if again else after

    patch.setattr(scheduler.delivery, "settle", settle)


def a_firing_forgets_its_conversation(patch: pytest.MonkeyPatch) -> None:
    original = delivery._run
    patch.setattr(delivery, "_run", lambda *arguments: replace(original(*arguments), conversation_id=None))


def a_due_time_is_taken_before_it_is_fired(patch: pytest.MonkeyPatch) -> None:
    """A crash in between loses it."""

    async def fire(self: Any, schedule: Schedule) -> None:
        now, transact = self._now(), self._world.database.transact
        if schedule.next_at is None or schedule.next_at > now:
            return
        times = scheduler.due_times(schedule, now)
        await transact(lambda tx: schedule_rows.replace(tx, replace(schedule, next_at=times.next_at, last_at=now)))
        for due in times.fire:
            firing, attempt = self._new(schedule, due, now, FiringStatus.waiting), self._attempt(now)

            def write(tx: Any, firing: Firing = firing, attempt: Any = attempt) -> list[Any]:
                if schedule_rows.find(tx, schedule.id) is None or firing_rows.exists(tx, schedule.id, firing.due_at):
                    return []
                after, run = delivery.deliver(tx, schedule, firing, attempt, self._quotas, self._settings)
                firing_rows.insert(tx, after)
                return [(after, run)]

            self._tried(await transact(write))

    patch.setattr(Scheduler, "_fire", fire)


def a_clock_that_was_set_back_is_not_followed(patch: pytest.MonkeyPatch) -> None:
    async def follow(self: Any) -> None:
        return None

    patch.setattr(Scheduler, "_follow_clock", follow)


def a_start_does_not_look_for_a_clock_that_was_set_back(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._seen = 0

    patch.setattr(Scheduler, "__init__", init)


def missed_times_are_all_made_up_for(patch: pytest.MonkeyPatch) -> None:
    original = scheduler.due_times

    def due_times(schedule: Schedule, now: int) -> DueTimes:
        return original(replace(schedule, missed=MissedPolicy.run_all), now)

    patch.setattr(scheduler, "due_times", due_times)


def a_write_that_failed_ends_the_scheduler(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler._look

    async def look(self: Any) -> float:
        try:
            return await original(self)
        except StorageError:
            await asyncio.sleep(86400.0)
            return 0.0

    patch.setattr(Scheduler, "_look", look)


def a_turn_that_failed_at_once_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    dead = lambda firing, error, now, **_: replace(  # noqa: E731
        firing, status=FiringStatus.dead, attempt_at=None, error=error, updated_at=now
    )
    patch.setattr(delivery, "after_failure", dead)
    patch.setattr(scheduled_batch, "after_failure", dead)


def two_servers_try_the_same_firing(patch: pytest.MonkeyPatch) -> None:
    """A firing is tried without a look at whether another server has tried it meanwhile."""

    async def try_again(self: Any, firing_id: Any) -> None:
        now = self._world.clock.now()
        attempt = self._attempt(now)
        firing = await self._world.database.read(lambda tx: firing_rows.find(tx, firing_id))

        def write(tx: Any) -> list[Any]:
            schedule = None if firing is None else schedule_rows.find(tx, firing.schedule_id)
            if firing is None or schedule is None:
                return []
            after, run = delivery.deliver(tx, schedule, firing, attempt, self._quotas, self._settings)
            firing_rows.replace(tx, after)
            return [(after, run)]

        self._tried(await self._world.database.transact(write))

    patch.setattr(Scheduler, "_try_again", try_again)


def a_change_of_a_schedule_takes_back_another(patch: pytest.MonkeyPatch) -> None:
    """As it was: the messages and how they are sent were taken from before the transaction."""

    async def update(self: Any, agent_id: Any, schedule_id: str, change: Any) -> Schedule:
        said = change(await self.get(agent_id, schedule_id)).said
        return await original(self, agent_id, schedule_id, lambda current: replace(change(current), said=said))

    original = Schedules.update
    patch.setattr(Schedules, "update", update)


# --- scheduled batches, batches and webhooks -------------------------------------------------------------------------


def a_scheduled_batch_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Its firing is not settled, because only the ends of runs are looked for."""
    original = firing_rows.ended

    def ended(tx: Any, most: int) -> list[Any]:
        return [each for each in original(tx, most) if getattr(firing_rows.find(tx, each), "batch_id", None) is None]

    patch.setattr(firing_rows, "ended", ended)


def a_scheduled_batch_that_was_heard_in_part_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    original = scheduled_batch.settle

    def settle(tx: Any, firing: Firing, batch_id: Any, now: int) -> Firing | None:
        after = original(tx, firing, batch_id, now)
        return after_failure(firing, "again", now, counted=True) if after is not None and after.error else after

    patch.setattr(scheduled_batch, "settle", settle)


def a_batch_is_stored_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """The client is told of a batch whose items may not be there."""
    original = batch_rows.insert
    kept: list[Any] = []

    def insert(tx: Any, job: Any, organization: Any, rows: Any) -> None:
        original(tx, job, organization, rows[:1])
        kept[:] = rows[1:]

    async def create(self: Any, *arguments: Any, **named: Any) -> Any:
        job = await real(self, *arguments, **named)
        rest = list(kept)
        try:
            await self._world.database.transact(
                lambda tx: tx.execute(
                    batch_rows._INSERT,
                    [
                        batch_rows._to_row(item)
                        | {"given": {"input": batch_rows.run_input_to_json(what.given), "config": {}}}
                        for item, what in rest
                    ],
                )
            )
        except StorageError:
            return job
        return job

    real = Batches.create
    patch.setattr(batch_rows, "insert", insert)
    patch.setattr(Batches, "create", create)


def a_full_queue_ends_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Messages of other clients in the queue of an agent keep the rest of a batch from being sent."""
    original = batch_runner._Places.has_room
    closed: set[Any] = set()

    def has_room(self: Any, item: Any) -> bool:
        return item.agent_id not in closed and original(self, item)

    patch.setattr(batch_runner._Places, "has_room", has_room)
    patch.setattr(batch_runner._Places, "close", lambda self, item: closed.add(item.agent_id))


def a_delivery_that_comes_again_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(webhooks, "DELIVERY_HEADERS", ())


def the_webhooks_of_an_agent_share_the_ids_of_their_deliveries(patch: pytest.MonkeyPatch) -> None:
    original = webhooks.Webhooks._shown

    async def shown(self: Any) -> Any:
        return replace(await original(self), id=HookId("hook-of-all"))

    patch.setattr(webhooks.Webhooks, "_shown", shown)


def the_items_of_a_batch_share_an_id(patch: pytest.MonkeyPatch) -> None:
    original = Batches._row

    def row(self: Any, batch_id: Any, place: int, new: Any, now: int) -> Any:
        item, what = original(self, batch_id, place, new, now)
        same = tuple(replace(each, otid=f"{batch_id}-0-{at}") for at, each in enumerate(what.given.messages))
        return item, replace(what, given=replace(what.given, messages=same))

    patch.setattr(Batches, "_row", row)


def a_batch_that_comes_again_is_another_one(patch: pytest.MonkeyPatch) -> None:
    numbers = count()
    original = RepeatableRequest.batch_id

    def batch_id(self: RepeatableRequest, organization: Any, agent_id: Any) -> Any:
        return original(replace(self, key=f"{self.key} {next(numbers)}"), organization, agent_id)

    patch.setattr(RepeatableRequest, "batch_id", batch_id)


def a_batch_counts_what_was_cancelled_as_failed(patch: pytest.MonkeyPatch) -> None:
    original = batch_rows.progress

    def progress(tx: Any, batch_id: Any) -> Any:
        done = original(tx, batch_id)
        return replace(done, failed=done.failed + done.cancelled, cancelled=0)

    patch.setattr(batch_rows, "progress", progress)


def a_schedule_that_is_paused_is_due_after_the_clock_was_set_back(patch: pytest.MonkeyPatch) -> None:
    original = scheduler._rewind

    def rewind(tx: Any, schedule: Schedule, now: int) -> None:
        original(tx, schedule, now)
        current = schedule_rows.find(tx, schedule.id)
        if current is not None and current.paused and current.recurrence is not None:
            schedule_rows.replace(tx, replace(current, next_at=current.recurrence.next_after(now)))

    patch.setattr(scheduler, "_rewind", rewind)


def a_firing_forgets_its_callback(patch: pytest.MonkeyPatch) -> None:
    original = delivery._run
    patch.setattr(delivery, "_run", lambda *arguments: replace(original(*arguments), callback_url=None))


def a_firing_takes_the_steps_of_the_settings(patch: pytest.MonkeyPatch) -> None:
    original = delivery.deliver

    def deliver(tx: Any, schedule: Schedule, *rest: Any) -> Any:
        return original(tx, replace(schedule, said=replace(schedule.said, max_steps=None)), *rest)

    patch.setattr(scheduler.delivery, "deliver", deliver)


def the_batch_of_a_firing_forgets_what_is_to_be_returned(patch: pytest.MonkeyPatch) -> None:
    original: Any = scheduled_batch.store

    def store(tx: Any, batch_id: Any, schedule: Any, messages: Any, max_steps: int, _: Any, now: int) -> None:
        original(tx, batch_id, schedule, messages, max_steps, {}, now)

    patch.setattr(scheduled_batch, "store", store)


def an_attempt_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    original = delivery.deliver

    def deliver(*arguments: Any) -> Any:
        after, run = original(*arguments)
        return replace(after, attempts=after.attempts - (after.status is FiringStatus.running)), run

    patch.setattr(scheduler.delivery, "deliver", deliver)


def a_firing_whose_turn_failed_is_done(patch: pytest.MonkeyPatch) -> None:
    original = delivery.settle

    def settle(*arguments: Any) -> Firing | None:
        after = original(*arguments)
        failed = after is not None and after.status is FiringStatus.dead
        return replace(after, status=FiringStatus.done) if after is not None and failed else after

    patch.setattr(scheduler.delivery, "settle", settle)


def a_delivery_is_heard_in_the_default_conversation(patch: pytest.MonkeyPatch) -> None:
    original = webhooks.SendRequest
    patch.setattr(webhooks, "SendRequest", lambda *given, **named: original(*given, **(named | {"conversation": ""})))


def nobody_is_told_that_a_batch_has_ended(patch: pytest.MonkeyPatch) -> None:
    original = batch_rows.change
    patch.setattr(batch_rows, "change", lambda tx, job, due_at=None: original(tx, job))


def a_callback_goes_where_its_receiver_sends_it(patch: pytest.MonkeyPatch) -> None:
    original = httpx.AsyncClient.stream

    def stream(self: Any, *arguments: Any, **named: Any) -> Any:
        return original(self, *arguments, **(named | {"follow_redirects": True}))

    patch.setattr(httpx.AsyncClient, "stream", stream)


def a_callback_that_was_refused_counts_as_taken(patch: pytest.MonkeyPatch) -> None:
    original = callbacks.record_attempt
    patch.setattr(
        callbacks,
        "record_attempt",
        lambda tx, of, at, status, error, again_at: original(tx, of, at, status, None, None),
    )


def a_batch_that_was_cancelled_says_how_its_items_ended(patch: pytest.MonkeyPatch) -> None:
    original = batch_runner._finish

    def finish(tx: Any, job: Any, now: int) -> Any:
        after = original(tx, job, now)
        if after.status is JobStatus.cancelled:
            after = replace(after, status=JobStatus.completed)
            batch_rows.change(tx, after, now if job.callback_url else None)
        return after

    patch.setattr(batch_runner, "_finish", finish)


def the_forks_of_a_batch_are_shown(patch: pytest.MonkeyPatch) -> None:
    original = batch_items.write_fork
    patch.setattr(
        batch_items, "write_fork", lambda tx, fork, origin, *, hidden: original(tx, fork, origin, hidden=False)
    )


def an_item_whose_run_was_cancelled_has_failed(patch: pytest.MonkeyPatch) -> None:
    original = batch_items.settle

    def settle(*arguments: Any) -> Any:
        after = original(*arguments)
        cancelled = after is not None and after.status is ItemStatus.cancelled
        return replace(after, status=ItemStatus.failed) if after is not None and cancelled else after

    patch.setattr(batch_items, "settle", settle)


def batches_that_have_ended_are_listed_as_active(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_rows, "_OF_ALL_ACTIVE", batch_rows._OF_ALL)


# --- files of imports -------------------------------------------------------------------------------------------------


def a_start_drops_the_files_of_an_import(patch: pytest.MonkeyPatch) -> None:
    only = select(file_table.c.id).where(
        file_table.c.id.in_(bindparam("ids", expanding=True)), file_table.c.status == FileStatus.parsing.value
    )
    patch.setattr(file_rows, "_UNREAD", only)


# --- sessions of the dashboard ---------------------------------------------------------------------------------------


def a_session_that_was_signed_out_is_remembered(patch: pytest.MonkeyPatch) -> None:
    original = Sessions.__init__

    def init(self: Any, world: Any, authenticator: Any) -> None:
        original(self, world, authenticator)
        own = ("admit", "password_identity")
        self._authenticator = SimpleNamespace(
            forget=lambda: None, **{name: getattr(authenticator, name) for name in own}
        )

    patch.setattr(Sessions, "__init__", init)


def a_session_outlives_its_key(patch: pytest.MonkeyPatch) -> None:
    """The rights of the key are taken over when the session is opened."""
    original = authentication._proved_by_session
    opened: dict[Any, Any] = {}

    def proved(tx: Any, credential: Any, session_id: Any, password: str | None) -> Any:
        if (found := original(tx, credential, session_id, password)) is not None:
            opened[session_id] = found
        return opened.get(session_id)

    patch.setattr(authentication, "_proved_by_session", proved)


def a_session_that_was_accepted_once_does_not_expire(patch: pytest.MonkeyPatch) -> None:
    original = authentication._proved_by_session

    def proved(*arguments: Any) -> Any:
        found = original(*arguments)
        return None if found is None else (replace(found[0], expires_at=None), found[1])

    patch.setattr(authentication, "_proved_by_session", proved)


_SCHEDULES, _BATCHED, _TWO = "schedules-and-webhooks", "scheduled-batches", "two-schedulers-one-disk"
_STILL = "no schedule stands still"
_ONCE = "a firing is heard once"
_FILES = "agent-files"

TRIGGERED = (
    Mutation(a_home_project_that_goes_is_told_to_no_live_agent, "projects", 3, 20, "a live agent has what is stored"),
    Mutation(a_deleted_project_stays_the_home_of_its_agents, "projects", 0, 20, "no agent has a deleted project"),
    Mutation(an_agent_leaves_its_project_in_two_transactions, "projects", 6, 20, "no agent has a deleted project"),
    Mutation(a_firing_that_was_heard_is_tried_again, _SCHEDULES, 0, 10, _ONCE),
    Mutation(a_due_time_is_taken_before_it_is_fired, _SCHEDULES, 29, 60, "each due time has a firing"),
    Mutation(a_clock_that_was_set_back_is_not_followed, _SCHEDULES, 2, 16, _STILL),
    Mutation(a_start_does_not_look_for_a_clock_that_was_set_back, _SCHEDULES, 12, 23, _STILL),
    Mutation(missed_times_are_all_made_up_for, _SCHEDULES, 2, 16, "missed times follow their policy"),
    Mutation(a_write_that_failed_ends_the_scheduler, _SCHEDULES, 4, 10, _STILL + "|a firing ends"),
    Mutation(a_turn_that_failed_at_once_is_not_tried_again, _SCHEDULES, 3, 20, "not heard is tried again"),
    Mutation(two_servers_try_the_same_firing, _TWO, 1, 20, _ONCE + "|a firing ends"),
    Mutation(a_change_of_a_schedule_takes_back_another, _SCHEDULES, 4, 10, "keep both changes"),
    Mutation(a_delivery_that_comes_again_is_new, _SCHEDULES, 0, 10, "a delivery is one message"),
    Mutation(a_scheduled_batch_is_forgotten, _BATCHED, 0, 10, "a firing ends"),
    Mutation(a_scheduled_batch_that_was_heard_in_part_is_tried_again, _BATCHED, 3, 20, _ONCE),
    Mutation(a_batch_is_stored_in_two_transactions, "batches", 1, 15, "an acknowledged batch is stored"),
    Mutation(a_full_queue_ends_the_batch, "batches", 1, 10, "a batch ends"),
    Mutation(
        an_agent_that_leaves_its_home_stays_where_it_was_added, "api-model-of-records", 24, 40, "shows what was done"
    ),
    Mutation(a_turn_that_failed_after_its_first_step_is_tried_again, _SCHEDULES, 8, 30, _ONCE),
    Mutation(a_firing_forgets_its_conversation, _SCHEDULES, 0, 10, "says what its schedule says"),
    Mutation(the_webhooks_of_an_agent_share_the_ids_of_their_deliveries, _SCHEDULES, 0, 10, "delivery is one message"),
    Mutation(the_items_of_a_batch_share_an_id, "batches", 0, 10, "an item"),
    Mutation(a_batch_that_comes_again_is_another_one, "batches", 0, 10, "comes again is one batch"),
    Mutation(a_batch_counts_what_was_cancelled_as_failed, "batches", 0, 15, "counts the outcomes"),
    Mutation(a_schedule_that_is_paused_is_due_after_the_clock_was_set_back, _SCHEDULES, 22, 70, "paused is not due"),
    Mutation(a_firing_forgets_its_callback, _SCHEDULES, 0, 6, "options of its schedule"),
    Mutation(a_firing_takes_the_steps_of_the_settings, _BATCHED, 0, 6, "options of its schedule"),
    Mutation(the_batch_of_a_firing_forgets_what_is_to_be_returned, _BATCHED, 0, 6, "options of its schedule"),
    Mutation(an_attempt_is_not_counted, _SCHEDULES, 0, 6, "ends as its run did"),
    Mutation(a_firing_whose_turn_failed_is_done, _SCHEDULES, 8, 30, "ends as its run did"),
    Mutation(a_delivery_is_heard_in_the_default_conversation, _SCHEDULES, 0, 6, "heard where it belongs"),
    Mutation(nobody_is_told_that_a_batch_has_ended, "batches", 0, 10, "callback of (a batch|jobs)"),
    Mutation(a_callback_goes_where_its_receiver_sends_it, "batches", 0, 10, "goes where it was asked to"),
    Mutation(a_callback_that_was_refused_counts_as_taken, "batches", 0, 10, "callback of a batch"),
    Mutation(a_batch_that_was_cancelled_says_how_its_items_ended, "batches", 0, 20, "counts the outcomes"),
    Mutation(the_forks_of_a_batch_are_shown, "batches", 0, 10, "are hidden"),
    Mutation(an_item_whose_run_was_cancelled_has_failed, "batches", 0, 20, "ends as its run did"),
    Mutation(batches_that_have_ended_are_listed_as_active, "batches", 1, 10, "a filter finds what fits it"),
    Mutation(a_start_drops_the_files_of_an_import, _FILES, 17, 60, "files of an import are kept"),
    Mutation(a_session_that_was_signed_out_is_remembered, "dashboard-sessions", 0, 10, "has ended lets nobody in"),
    Mutation(a_session_outlives_its_key, "dashboard-sessions", 0, 10, "has ended lets nobody in"),
    Mutation(a_session_that_was_accepted_once_does_not_expire, "dashboard-sessions", 0, 10, "outlives its lifetime"),
)
