"""Activations that fail: what is told, when they are tried again, and who is spared."""

import asyncio
import math
import random

import pytest

from kelpie.actors.failure import Failure, failure_after, text_of
from kelpie.actors.limits import ActorLimits
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.errors import (
    ActivationFailed,
    AgentStopped,
    ConfigurationError,
    DiskFull,
    MailboxFull,
    NotFound,
    StorageError,
)
from tests.actors.harness import Harness, ignore, name, number, raising, seeded


@seeded()
async def test_a_failed_load_is_retried_within_a_second_and_the_waiting_job_runs(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("the disk is away")]
    assert await harness.dispatcher.submit("a", "default", number) == 2
    first, second = harness.load_times
    assert 0.2 < second - first < 1.0
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loaded)
    wanted = [
        ActivationState.loading,
        ActivationState.failed,
        ActivationState.loading,
        ActivationState.loaded,
        ActivationState.running,
        ActivationState.loaded,
    ]
    assert harness.states() == wanted


@seeded()
async def test_the_failure_can_be_seen_while_it_lasts_and_not_afterwards(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("the disk is away"), ValueError("bad row")]
    reply = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.failed)
    status = harness.dispatcher.status("a")
    assert (status.error, status.attempts) == ("the disk is away", 1)
    assert status.failed_at is not None and status.retry_at is not None
    assert 200_000 <= status.retry_at - status.failed_at <= 500_000
    await harness.until(lambda: harness.dispatcher.status("a").attempts == 2)
    assert harness.dispatcher.status("a").error == "bad row"
    await reply
    assert harness.dispatcher.status("a").error is None
    failed = [t for t in harness.seen if t.after is ActivationState.failed]
    assert [t.reason for t in failed] == ["the disk is away", "bad row"]


@seeded(attempts_max=3)
async def test_after_so_many_failures_the_waiting_jobs_are_told(harness: Harness) -> None:
    harness.errors["a"] = [StorageError(f"failure {n}") for n in range(10)]
    replies = [harness.dispatcher.submit("a", lane, ignore) for lane in ("one", "one", "two")]
    results = await asyncio.gather(*replies, return_exceptions=True)
    for error in results:
        assert isinstance(error, ActivationFailed)
        assert "failure 2" in str(error) and "a could not be loaded" in str(error)
        assert 0 < error.retry_after_s <= 2.0
        assert isinstance(error.__cause__, StorageError)
    assert harness.loads == ["a"] * 3
    status = harness.dispatcher.status("a")
    assert (status.state, status.error, status.attempts) == (ActivationState.failed, "failure 2", 3)
    await asyncio.sleep(600)
    assert harness.loads == ["a"] * 3, "nobody asked for another try"


@seeded()
async def test_where_nothing_can_be_stored_every_job_is_told_at_once_and_tries_anew(harness: Harness) -> None:
    harness.errors["a"] = [DiskFull("the disk is full. Free some space and try again.")] * 3
    asked_at = harness.loop.time()
    for tries in (1, 2, 3):
        with pytest.raises(ActivationFailed, match=r"could not be loaded: the disk is full\. Free some space and try"):
            await harness.dispatcher.submit("a", "default", ignore)
        assert len(harness.loads) == tries and harness.loop.time() - asked_at < 0.01
    assert await harness.dispatcher.submit("a", "default", number) == 4


@seeded(attempts_max=2)
async def test_a_later_job_waits_for_the_scheduled_try_and_no_longer(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")] * 3
    with pytest.raises(ActivationFailed) as failed:
        await harness.dispatcher.submit("a", "default", ignore)
    told_at = harness.loop.time()
    with pytest.raises(ActivationFailed):
        await harness.dispatcher.submit("a", "default", ignore)
    assert len(harness.loads) == 3, "one try at a time once too many failed"
    assert harness.load_times[2] - told_at == pytest.approx(failed.value.retry_after_s, abs=0.01)
    assert await harness.dispatcher.submit("a", "default", number) == 4


@seeded(attempts_max=1)
async def test_a_job_after_the_backoff_is_tried_at_once(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")]
    with pytest.raises(ActivationFailed):
        await harness.dispatcher.submit("a", "default", ignore)
    await asyncio.sleep(10)
    asked_at = harness.loop.time()
    assert await harness.dispatcher.submit("a", "default", number) == 2
    assert harness.load_times[1] - asked_at < 0.01


@seeded(attempts_max=1, mailbox_size=2, backoff_max_s=30.0)
async def test_the_queue_behind_a_scheduled_try_is_bounded(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")]
    with pytest.raises(ActivationFailed):
        await harness.dispatcher.submit("a", "default", ignore)
    accepted = [harness.dispatcher.submit("a", "default", ignore) for _ in range(2)]
    with pytest.raises(MailboxFull):
        harness.dispatcher.submit("a", "default", ignore)
    await asyncio.gather(*accepted)


@seeded(hot_max=1)
async def test_a_failing_key_holds_up_no_other(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")] * 4
    failing = harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.failed)
    assert await harness.dispatcher.submit("b", "default", name) == "b"
    assert not failing.done()
    await failing


@seeded()
async def test_a_refused_key_is_told_at_once_and_forgotten(harness: Harness) -> None:
    harness.errors["a"] = [NotFound("agent", "a")]
    replies = [harness.dispatcher.submit("a", lane, ignore) for lane in ("one", "two", "two")]
    errors = await asyncio.gather(*replies, return_exceptions=True)
    assert all(isinstance(error, NotFound) for error in errors)
    assert harness.loads == ["a"]
    assert harness.dispatcher.status("a").state is ActivationState.unloaded
    assert harness.dispatcher.counts().resting == 0
    assert harness.states() == [ActivationState.loading, ActivationState.stopping, ActivationState.unloaded]
    assert await harness.dispatcher.submit("a", "default", name) == "a"


@seeded()
async def test_a_stopped_key_is_refused_and_shown_as_stopped(harness: Harness) -> None:
    harness.errors["a"] = [AgentStopped("a is stopped")] * 2
    for _ in range(2):
        with pytest.raises(AgentStopped):
            await harness.dispatcher.submit("a", "default", ignore)
        assert harness.dispatcher.status("a").state is ActivationState.stopped
    assert await harness.dispatcher.submit("a", "default", name) == "a"


@seeded()
async def test_a_refusal_after_failures_is_still_a_refusal(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away"), NotFound("agent", "a")]
    with pytest.raises(NotFound):
        await harness.dispatcher.submit("a", "default", ignore)
    assert harness.dispatcher.status("a").state is ActivationState.unloaded
    assert harness.dispatcher.status("a").error is None


@seeded(activate_s=2.0, attempts_max=1)
async def test_a_load_that_hangs_is_a_failure(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    with pytest.raises(ActivationFailed, match=r"longer than 2.0 s"):
        await harness.dispatcher.submit("a", "default", ignore)


@seeded(attempts_max=1)
async def test_a_load_that_is_cancelled_from_within_is_a_failure(harness: Harness) -> None:
    harness.errors["a"] = [asyncio.CancelledError()]
    with pytest.raises(ActivationFailed, match="cancelled from within"):
        await harness.dispatcher.submit("a", "default", ignore)


@seeded()
async def test_a_job_that_succeeds_ends_the_row_of_failures(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")] * 3
    await harness.until_hot()
    harness.dispatcher.drop("a", StorageError("away again"))
    assert harness.dispatcher.status("a").attempts == 1


@seeded(attempts_max=2)
async def test_a_load_that_succeeds_ends_the_row_of_failed_loads(harness: Harness) -> None:
    harness.errors["a"] = [StorageError("away")]
    with pytest.raises(StorageError):
        await harness.dispatcher.submit("a", "default", raising(StorageError("away again")))
    harness.errors["a"] = [StorageError("away")]
    assert await harness.dispatcher.submit("a", "default", number) == 4


@seeded(resting_max=3, attempts_max=1)
async def test_only_so_many_failures_are_remembered(harness: Harness) -> None:
    for n in range(5):
        harness.errors[f"k{n}"] = [StorageError("away")]
        with pytest.raises(ActivationFailed):
            await harness.dispatcher.submit(f"k{n}", "default", ignore)
    assert harness.dispatcher.counts().resting == 3
    states = [harness.dispatcher.status(f"k{n}").state for n in range(5)]
    assert states == [
        ActivationState.unloaded,
        ActivationState.unloaded,
        ActivationState.failed,
        ActivationState.failed,
        ActivationState.failed,
    ]
    assert harness.states("k0") == [ActivationState.loading, ActivationState.failed, ActivationState.unloaded]


def test_backoff_doubles_with_jitter_up_to_its_bound() -> None:
    limits = ActorLimits(backoff_first_s=0.5, backoff_max_s=8.0)
    rng = random.Random(1)
    failure: Failure | None = None
    for attempt in range(1, 100):
        failure = failure_after(failure, OSError("x"), limits=limits, rng=rng, now=1000, loop_time=7.0)
        full_s = min(8.0, 0.5 * 2 ** (attempt - 1))
        assert failure.attempts == attempt
        assert full_s / 2 <= failure.due - 7.0 <= full_s
        assert failure.retry_at == 1000 + int((failure.due - 7.0) * 1_000_000) or abs(failure.retry_at) > 0
    delays = {
        round(failure_after(None, OSError(), limits=limits, rng=rng, now=0, loop_time=0).due, 6) for _ in range(50)
    }
    assert len(delays) > 40, "jitter"


def test_an_error_without_words_is_named() -> None:
    assert text_of(KeyError()) == "KeyError"
    assert len(text_of(ValueError("x" * 10_000))) == 2000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mailbox_size", 0),
        ("lanes_max", 0),
        ("hot_max", 0),
        ("pending_max", 0),
        ("resting_max", 0),
        ("attempts_max", 0),
        ("idle_s", 0),
        ("place_wait_s", 0),
        ("activate_s", -1),
        ("deactivate_s", 0),
        ("cancel_s", 0),
        ("retry_after_s", 0),
        ("drain_s", -1),
        ("backoff_first_s", 0),
        ("backoff_first_s", 0.6),
        ("backoff_max_s", 0.1),
        ("idle_s", math.nan),
        ("drain_s", math.nan),
        ("backoff_max_s", math.nan),
    ],
)
def test_limits_that_would_stop_the_room_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ActorLimits(**{name: value})  # pyright: ignore[reportArgumentType]
    assert refused.value.setting == name
