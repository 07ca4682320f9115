"""The policies for times that passed while no server was running."""

from dataclasses import replace

from kelpie.core.conversations.messages import NewMessage, Role, Text
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, ScheduleId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.triggers.recurrence import Recurrence
from kelpie.core.triggers.schedules import ATTEMPTS_MAX, MissedPolicy, Schedule, ScheduledMessages, due_times, retry_at

MINUTE = 60 * MICROS_PER_SECOND
SCHEDULE = Schedule(
    ScheduleId("schedule-00000000-0000-4000-8000-000000000001"),
    DEFAULT_ORGANIZATION,
    AgentId("agent-00000000-0000-4000-8000-000000000001"),
    ScheduledMessages((NewMessage(Role.user, (Text("hi"),)),)),
    at=None,
    recurrence=Recurrence("*/10 * * * *"),
    created_at=0,
    updated_at=0,
    next_at=10 * MINUTE,
)


def test_a_time_that_has_just_come_fires_under_every_policy() -> None:
    for policy in MissedPolicy:
        times = due_times(replace(SCHEDULE, missed=policy), 10 * MINUTE + 5)
        assert (times.fire, times.skipped, times.next_at) == ((10 * MINUTE,), None, 20 * MINUTE)


def test_missed_times_are_made_up_for_as_the_policy_says() -> None:
    now = 55 * MINUTE  # 10, 20, 30, 40 and 50 have passed
    once = due_times(SCHEDULE, now)
    assert (once.fire, once.skipped, once.next_at) == ((50 * MINUTE,), 40 * MINUTE, 60 * MINUTE)
    every = due_times(replace(SCHEDULE, missed=MissedPolicy.run_all, missed_max=3), now)
    assert (every.fire, every.skipped) == ((30 * MINUTE, 40 * MINUTE, 50 * MINUTE), 20 * MINUTE)
    skip = due_times(replace(SCHEDULE, missed=MissedPolicy.skip), now)
    assert (skip.fire, skip.skipped) == ((), 50 * MINUTE)


def test_a_time_that_is_due_now_replaces_the_missed_ones_of_run_once() -> None:
    times = due_times(SCHEDULE, 50 * MINUTE + 1)
    assert (times.fire, times.skipped) == ((50 * MINUTE,), 40 * MINUTE)
    skip = due_times(replace(SCHEDULE, missed=MissedPolicy.skip), 50 * MINUTE + 1)
    assert (skip.fire, skip.skipped) == ((50 * MINUTE,), 40 * MINUTE)


def test_a_year_of_missed_minutes_is_not_walked_through() -> None:
    minutely = replace(SCHEDULE, recurrence=Recurrence("* * * * *"), missed=MissedPolicy.run_all, missed_max=100)
    now = 365 * 24 * 60 * MINUTE + 30 * MINUTE
    times = due_times(minutely, now + 1)
    assert len(times.fire) == 101 and times.fire[-1] == now and times.skipped == now - 101 * MINUTE


def test_a_single_time_fires_late_unless_it_is_to_be_skipped() -> None:
    single = replace(SCHEDULE, at=10 * MINUTE, recurrence=None)
    assert due_times(single, 99 * MINUTE).fire == (10 * MINUTE,)
    skipped = due_times(replace(single, missed=MissedPolicy.skip), 99 * MINUTE)
    assert (skipped.fire, skipped.skipped, skipped.next_at) == ((), 10 * MINUTE, None)


def test_attempts_are_limited_and_their_pauses_grow() -> None:
    pauses = [retry_at(attempts, 0) for attempts in range(1, ATTEMPTS_MAX)]
    assert all(pauses) and pauses == sorted(pauses, key=lambda each: each or 0)
    assert retry_at(ATTEMPTS_MAX, 0) is None
