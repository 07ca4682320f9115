"""Schedules API: create, change and read schedules of an agent, fire one now, and settle what failed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kelpie.agent.inbox import send_preparation
from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import AgentId, FiringId, OrganizationId, ScheduleId
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.core.triggers.recurrence import Recurrence
from kelpie.core.triggers.schedules import (
    ON_TIME,
    SCHEDULES_MAX,
    Firing,
    FiringStatus,
    MissedPolicy,
    Schedule,
    ScheduledMessages,
)
from kelpie.llm.routing.models import Models
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import conversations
from kelpie.storage.triggers import firings, schedules
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule as a client describes it. Exactly one of `at` and `recurrence` is set."""

    said: ScheduledMessages
    at: Micros | None
    recurrence: Recurrence | None
    name: str | None
    missed: MissedPolicy
    missed_max: int
    paused: bool


class Schedules:
    """Schedules of the caller's organization."""

    def __init__(
        self,
        world: World,
        models: Models,
        settings: Settings,
        wake: Callable[[], None],
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._settings = settings
        self._wake = wake
        self._organization: OrganizationId = caller.organization_id

    async def create(self, agent_id: AgentId, new: NewSchedule) -> Schedule:
        """Raises NotFound, InvalidInput, Conflict, QuotaExceeded, StorageError."""
        now = self._world.clock.now()
        _check_future(new.at, now)
        said = await self._prepared(agent_id, new.said)
        schedule = Schedule(
            id=self._world.ids.new(ScheduleId),
            organization_id=self._organization,
            agent_id=agent_id,
            said=said,
            at=new.at,
            recurrence=new.recurrence,
            created_at=now,
            updated_at=now,
            name=new.name,
            missed=new.missed,
            missed_max=new.missed_max,
            paused=new.paused,
        )
        schedule = _timed(schedule, now)

        def write(tx: Tx) -> None:
            row_ownership.agent(tx, self._organization, agent_id)
            _check_conversation(tx, schedule)
            if schedules.count(tx, agent_id) >= SCHEDULES_MAX:
                raise Conflict(f"The agent has {SCHEDULES_MAX} schedules, which is the maximum. Delete some first.")
            schedules.insert(tx, schedule)

        await self._world.database.transact(write)
        self._wake()
        return schedule

    async def update(self, agent_id: AgentId, schedule_id: str, change: Callable[[Schedule], NewSchedule]) -> Schedule:
        """Replaces what a client may change; a new time or a pause takes effect at once.

        Raises NotFound, InvalidInput, StorageError.
        """
        before = await self.get(agent_id, schedule_id)
        asked = change(before).said
        prepared = await self._prepared(agent_id, asked)
        now = self._world.clock.now()

        def write(tx: Tx) -> Schedule:
            current = self._locked(tx, agent_id, schedule_id)
            new = change(current)
            if new.said.messages == asked.messages:  # otherwise another request changed them, and this one does not
                new = replace(new, said=replace(new.said, messages=prepared.messages))
            if new.at != current.at:
                _check_future(new.at, now)
            after = replace(
                current,
                said=new.said,
                at=new.at,
                recurrence=new.recurrence,
                name=new.name,
                missed=new.missed,
                missed_max=new.missed_max,
                paused=new.paused,
                updated_at=now,
            )
            _check_conversation(tx, after)
            moved = (after.at, after.recurrence, after.paused) != (current.at, current.recurrence, current.paused)
            after = _timed(after, now) if moved else after
            schedules.replace(tx, after)
            return after

        after = await self._world.database.transact(write)
        self._wake()
        return after

    async def get(self, agent_id: AgentId | None, schedule_id: str) -> Schedule:
        """A schedule of this agent, or of any. Raises NotFound."""
        return await self._world.database.read(lambda tx: self._owned(tx, agent_id, schedule_id))

    async def page(self, agent_id: AgentId | None, wanted: Page) -> list[Schedule]:
        """Schedules of an agent, or of all agents. Raises NotFound."""

        def read(tx: Tx) -> list[Schedule]:
            if agent_id is not None:
                row_ownership.agent(tx, self._organization, agent_id)
            return schedules.page(tx, self._organization, agent_id, wanted)

        return await self._world.database.read(read)

    async def delete(self, agent_id: AgentId, schedule_id: str) -> None:
        """Deletes a schedule with its history; a run that it began goes on. Raises NotFound."""

        def write(tx: Tx) -> None:
            schedules.delete(tx, self._locked(tx, agent_id, schedule_id).id)

        await self._world.database.transact(write)

    async def fire_now(self, agent_id: AgentId, schedule_id: str) -> Firing:
        """Fires a schedule once beside its times, also a paused one. Raises NotFound."""
        now, firing_id = self._world.clock.now(), self._world.ids.new(FiringId)

        def write(tx: Tx) -> Firing:
            schedule = self._locked(tx, agent_id, schedule_id)
            firing = Firing(
                id=firing_id,
                schedule_id=schedule.id,
                organization_id=schedule.organization_id,
                agent_id=schedule.agent_id,
                due_at=now,
                status=FiringStatus.waiting,
                created_at=now,
                updated_at=now,
                attempt_at=now,
                manual=True,
            )
            firings.insert(tx, firing)
            return firing

        firing = await self._world.database.transact(write)
        self._wake()
        return firing

    async def history(
        self, agent_id: AgentId, schedule_id: str, status: FiringStatus | None, wanted: Page
    ) -> list[Firing]:
        """Firings of a schedule. Raises NotFound."""

        def read(tx: Tx) -> list[Firing]:
            schedule = self._owned(tx, agent_id, schedule_id)
            return firings.history(tx, self._organization, schedule.id, status, wanted)

        return await self._world.database.read(read)

    async def all_firings(self, status: FiringStatus | None, wanted: Page) -> list[Firing]:
        """Firings of all schedules of the organization, such as those that were given up."""
        return await self._world.database.read(lambda tx: firings.history(tx, self._organization, None, status, wanted))

    async def requeue(self, firing_id: str) -> Firing:
        """Gives a firing that was given up its attempts again. Raises NotFound, Conflict."""
        now = self._world.clock.now()

        def write(tx: Tx) -> Firing:
            firing = firings.get(tx, self._organization, firing_id)
            if firing.status is not FiringStatus.dead:
                raise Conflict(f"{firing.id} is {firing.status.value}; only a dead firing can be queued again.")
            after = replace(firing, status=FiringStatus.waiting, attempts=0, attempt_at=now, updated_at=now)
            firings.replace(tx, after)
            return after

        after = await self._world.database.transact(write)
        self._wake()
        return after

    def _owned(self, tx: Tx, agent_id: AgentId | None, schedule_id: str) -> Schedule:
        if agent_id is not None:
            row_ownership.agent(tx, self._organization, agent_id)
        return schedules.get(tx, self._organization, agent_id, schedule_id)

    def _locked(self, tx: Tx, agent_id: AgentId, schedule_id: str) -> Schedule:
        row_ownership.agent(tx, self._organization, agent_id)
        return schedules.locked(tx, self._organization, agent_id, schedule_id)

    async def _prepared(self, agent_id: AgentId, said: ScheduledMessages) -> ScheduledMessages:
        """The messages with their images read, as for a message that is sent now."""
        send = SendRequest(said.messages, conversation=said.conversation_id or "")
        if send_preparation.is_plain(send):
            return said
        shared = self._world, self._models, self._settings, self._organization
        return replace(said, messages=(await send_preparation.prepare(*shared, agent_id, send)).messages)


def _timed(schedule: Schedule, now: Micros) -> Schedule:
    """The schedule with its next time; a time of a few seconds ago is due now."""
    return replace(
        schedule, next_at=None if schedule.paused else schedule.due_after(now - (ON_TIME if schedule.at else 0))
    )


def _check_future(at: Micros | None, now: Micros) -> None:
    if at is not None and at < now - ON_TIME:
        raise InvalidInput("scheduled_time", "is in the past; give a time in the future")


def _check_conversation(tx: Tx, schedule: Schedule) -> None:
    conversation_id = schedule.said.conversation_id
    if conversation_id is None:
        return
    if conversations.get(tx, schedule.organization_id, conversation_id).agent_id != schedule.agent_id:
        raise InvalidInput("conversation_id", f"{conversation_id} is a conversation of another agent")
