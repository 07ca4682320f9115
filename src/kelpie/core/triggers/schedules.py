"""Schedules and their firings. A schedule says when an agent gets which messages; a firing is one such time."""

from dataclasses import dataclass, replace
from enum import StrEnum

from kelpie.core.conversations.messages import NewMessage
from kelpie.core.ids import AgentId, ConversationId, FiringId, JobId, OrganizationId, RunId, ScheduleId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.triggers.recurrence import Recurrence

MISSED_MAX = 100  # firings that a schedule may make up for at once
ON_TIME = 60 * MICROS_PER_SECOND  # a firing that is later than this was missed
SCHEDULES_MAX = 1_000  # of one agent
UNSETTLED_MAX = 10  # firings of a schedule that wait or run; while there are so many, further times are skipped
HISTORY_MAX = 200  # settled firings that a schedule keeps
ATTEMPTS_MAX = 6
ERROR_CHARS_MAX = 500
RETRY_S = (10.0, 60.0, 300.0, 1800.0, 7200.0)  # after each attempt that failed; then the firing is dead


class MissedPolicy(StrEnum):
    """What happens to the times that passed while no server was running."""

    run_once = "run_once"  # the newest is made up for
    run_all = "run_all"  # the newest `missed_max` are made up for
    skip = "skip"


class FiringStatus(StrEnum):
    waiting = "waiting"  # for its first attempt or the next one
    running = "running"  # the agent has the messages
    done = "done"
    cancelled = "cancelled"  # somebody cancelled its run
    skipped = "skipped"
    dead = "dead"  # given up; it can be queued again


SETTLED = frozenset({FiringStatus.done, FiringStatus.cancelled, FiringStatus.skipped, FiringStatus.dead})


@dataclass(frozen=True, slots=True)
class ScheduledMessages:
    """What the agent gets each time."""

    messages: tuple[NewMessage, ...]
    max_steps: int | None = None  # None: the server's default
    callback_url: str | None = None
    return_types: tuple[str, ...] | None = None
    conversation_id: ConversationId | None = None  # None: the agent's default conversation
    batch: bool = False  # each message has a turn of its own, one after another; otherwise all have one turn


@dataclass(frozen=True, slots=True)
class Schedule:
    """Exactly one of `at` and `recurrence` is set. `next_at` is None when nothing more is due."""

    id: ScheduleId
    organization_id: OrganizationId
    agent_id: AgentId
    said: ScheduledMessages
    at: Micros | None
    recurrence: Recurrence | None
    created_at: Micros
    updated_at: Micros
    name: str | None = None
    missed: MissedPolicy = MissedPolicy.run_once
    missed_max: int = MISSED_MAX
    paused: bool = False
    next_at: Micros | None = None
    last_at: Micros | None = None  # the due time that was handled last

    def due_after(self, at: Micros) -> Micros | None:
        """Its first due time later than this moment."""
        if self.recurrence is not None:
            return self.recurrence.next_after(at)
        return self.at if self.at is not None and self.at > at else None


@dataclass(frozen=True, slots=True)
class Firing:
    """`attempt_at` is the time of the next attempt, None unless it waits for one."""

    id: FiringId
    schedule_id: ScheduleId
    organization_id: OrganizationId
    agent_id: AgentId
    due_at: Micros
    status: FiringStatus
    created_at: Micros
    updated_at: Micros
    attempts: int = 0
    attempt_at: Micros | None = None
    run_id: RunId | None = None
    batch_id: JobId | None = None  # instead of a run, if each message has one
    error: str | None = None
    manual: bool = False  # a person asked for it


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The times of a schedule that have come: those to fire, the last of those to skip, and the next one."""

    fire: tuple[Micros, ...]
    skipped: Micros | None
    next_at: Micros | None


def due_times(schedule: Schedule, now: Micros) -> DueTimes:
    """Applies the policy for missed times to everything that is due by now."""
    assert schedule.next_at is not None and schedule.next_at <= now
    if schedule.recurrence is None:
        late = now - schedule.next_at > ON_TIME and schedule.missed is MissedPolicy.skip
        return DueTimes((), schedule.next_at, None) if late else DueTimes((schedule.next_at,), None, None)
    past = _past(schedule, schedule.next_at, schedule.recurrence, now)
    on_time = [due for due in past if now - due <= ON_TIME]
    missed = past[: len(past) - len(on_time)]
    match schedule.missed:
        case MissedPolicy.skip:
            kept: list[Micros] = []
        case MissedPolicy.run_once:
            kept = missed[-1:] if not on_time else []
        case MissedPolicy.run_all:
            kept = missed[max(0, len(missed) - schedule.missed_max) :]
    dropped = missed[: len(missed) - len(kept)]
    skipped = dropped[-1] if dropped else None
    return DueTimes((*kept, *on_time), skipped, schedule.recurrence.next_after(now))


def _past(schedule: Schedule, first: Micros, recurrence: Recurrence, now: Micros) -> list[Micros]:
    """The due times up to now, at most the newest that a policy could want and one more: a server that was off for a
    year does not walk through each of its minutes."""
    most = schedule.missed_max + 2
    past = [first, *recurrence.between(first, now, most)]
    return past if len(past) <= most else recurrence.newest(now, most)


def retry_at(attempts: int, now: Micros) -> Micros | None:
    """When a firing that failed so many times is tried again; None when it is given up."""
    if attempts >= ATTEMPTS_MAX:
        return None
    return now + int(RETRY_S[min(attempts, len(RETRY_S)) - 1] * MICROS_PER_SECOND)


def after_failure(firing: Firing, error: str, now: Micros, *, counted: bool = False) -> Firing:
    """The firing after an attempt that failed: it waits for the next one, or is given up."""
    attempts = firing.attempts if counted else firing.attempts + 1
    again_at = retry_at(attempts, now)
    return replace(
        firing,
        status=FiringStatus.dead if again_at is None else FiringStatus.waiting,
        attempts=attempts,
        attempt_at=again_at,
        error=error[:ERROR_CHARS_MAX],
        updated_at=now,
    )
