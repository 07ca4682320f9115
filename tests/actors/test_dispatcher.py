"""Submitting jobs: results, lanes, order, bounds, and reaching the live handler."""

import asyncio
from typing import Any

import pytest

from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.errors import MailboxFull, NotFound, Overloaded
from tests.actors.harness import Handler, Harness, HeldJob, ignore, name, number, raising, seeded


@seeded()
async def test_a_job_gets_the_handler_and_its_result_comes_back(harness: Harness) -> None:
    assert await harness.dispatcher.submit("a", "default", name) == "a"
    assert await harness.dispatcher.submit("b", "default", name) == "b"
    assert harness.loads == ["a", "b"]


@seeded()
async def test_a_hot_key_is_loaded_once(harness: Harness) -> None:
    assert [await harness.dispatcher.submit("a", "default", number) for _ in range(5)] == [1] * 5
    assert harness.loads == ["a"]


@seeded()
async def test_the_states_of_a_first_use(harness: Harness) -> None:
    await harness.dispatcher.submit("a", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loaded)
    assert harness.states() == [
        ActivationState.loading,
        ActivationState.loaded,
        ActivationState.running,
        ActivationState.loaded,
    ]


@seeded()
async def test_a_cold_key_has_no_state_to_speak_of(harness: Harness) -> None:
    assert harness.dispatcher.status("a").state is ActivationState.unloaded
    assert harness.dispatcher.handler("a") is None
    assert not harness.dispatcher.notify("a", lambda _: None)
    assert harness.seen == []


@seeded()
async def test_the_jobs_error_goes_to_the_caller_and_harms_nothing_else(harness: Harness) -> None:
    with pytest.raises(ZeroDivisionError):
        await harness.dispatcher.submit("a", "default", raising(ZeroDivisionError()))
    with pytest.raises(NotFound):
        await harness.dispatcher.submit("a", "default", raising(NotFound("block", "x")))
    assert await harness.dispatcher.submit("a", "default", number) == 1


@seeded()
async def test_a_lane_is_first_in_first_out_and_one_at_a_time(harness: Harness) -> None:
    order: list[int] = []
    running = 0

    def job(n: int) -> Any:
        async def work(_: Handler) -> int:
            nonlocal running
            running += 1
            assert running == 1
            order.append(n)
            await asyncio.sleep(0.01 * (n % 3))
            running -= 1
            return n

        return work

    replies = [harness.dispatcher.submit("a", "default", job(n)) for n in range(20)]
    assert await asyncio.gather(*replies) == list(range(20))
    assert order == list(range(20))


@seeded()
async def test_lanes_of_one_key_run_beside_each_other(harness: Harness) -> None:
    first, second = HeldJob("first"), HeldJob("second")
    one = harness.dispatcher.submit("a", "one", first)
    two = harness.dispatcher.submit("a", "two", second)
    await first.began.wait()
    await second.began.wait()
    assert first.handler is second.handler
    assert harness.dispatcher.status("a").state is ActivationState.running
    second.go.set()
    assert await two == "second"
    assert not one.done()
    assert harness.dispatcher.status("a").state is ActivationState.running
    first.go.set()
    assert await one == "first"
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loaded)
    assert harness.states() == [
        ActivationState.loading,
        ActivationState.loaded,
        ActivationState.running,
        ActivationState.loaded,
    ]


@seeded()
async def test_a_slow_key_does_not_hold_up_another(harness: Harness) -> None:
    slow = HeldJob()
    waiting = harness.dispatcher.submit("a", "default", slow)
    await slow.began.wait()
    assert await harness.dispatcher.submit("b", "default", name) == "b"
    slow.go.set()
    await waiting


@seeded(mailbox_size=3)
async def test_a_full_mailbox_refuses_at_once_and_counts_all_lanes(harness: Harness) -> None:
    one, two = HeldJob(), HeldJob()
    accepted = [harness.dispatcher.submit("a", "one", one), harness.dispatcher.submit("a", "two", two)]
    await one.began.wait()
    await two.began.wait()
    accepted += [harness.dispatcher.submit("a", lane, ignore) for lane in ("one", "one", "two")]
    for lane in ("one", "two"):
        with pytest.raises(MailboxFull) as refused:
            harness.dispatcher.submit("a", lane, ignore)
        assert refused.value.retry_after_s > 0
    assert await harness.dispatcher.submit("b", "one", name) == "b"
    one.go.set()
    two.go.set()
    await asyncio.gather(*accepted)
    await harness.dispatcher.submit("a", "one", ignore)


@seeded(mailbox_size=3)
async def test_the_mailbox_is_bounded_while_the_key_is_loading(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    accepted = [harness.dispatcher.submit("a", "default", ignore) for _ in range(3)]
    with pytest.raises(MailboxFull):
        harness.dispatcher.submit("a", "default", ignore)
    harness.load_gate["a"].set()
    await asyncio.gather(*accepted)


@seeded(lanes_max=2)
async def test_lanes_beyond_the_bound_wait_for_a_turn(harness: Harness) -> None:
    plays = [HeldJob(n) for n in range(4)]
    replies = [harness.dispatcher.submit("a", f"lane {n}", job) for n, job in enumerate(plays)]
    await plays[1].began.wait()
    await asyncio.sleep(1)
    assert [job.began.is_set() for job in plays] == [True, True, False, False]
    for job in plays:
        job.go.set()
    assert await asyncio.gather(*replies) == [0, 1, 2, 3]


@seeded(lanes_max=1)
async def test_lanes_that_wait_for_each_other_take_turns(harness: Harness) -> None:
    order: list[str] = []

    def job(name: str) -> Any:
        async def work(_: Handler) -> None:
            order.append(name)

        return work

    asked = (("one", "1a"), ("one", "1b"), ("one", "1c"), ("two", "2a"), ("two", "2b"))
    await asyncio.gather(*[harness.dispatcher.submit("a", lane, job(name)) for lane, name in asked])
    assert order == ["1a", "2a", "1b", "2b", "1c"]


@seeded()
async def test_the_live_handler_can_be_reached_beside_a_running_job(harness: Harness) -> None:
    job = HeldJob()
    reply = harness.dispatcher.submit("a", "default", job)
    await job.began.wait()
    assert harness.dispatcher.handler("a") is job.handler
    assert harness.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    assert job.handler is not None and job.handler.notes == ["edited"]
    job.go.set()
    await reply


@seeded()
async def test_what_is_told_during_a_load_reaches_the_handler_before_its_first_job(harness: Harness) -> None:
    async def notes(handler: Handler) -> list[str]:
        return list(handler.notes)

    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "default", notes)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    assert harness.dispatcher.handler("a") is None
    assert harness.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    harness.load_gate["a"].set()
    assert await reply == ["edited"]


@seeded(mailbox_size=2)
async def test_more_told_during_a_load_than_is_kept_loads_again(harness: Harness) -> None:
    harness.load_gate["a"] = asyncio.Event()
    reply = harness.dispatcher.submit("a", "default", number)
    await harness.until(lambda: harness.dispatcher.status("a").state is ActivationState.loading)
    for _ in range(3):
        harness.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    harness.load_gate["a"].set()
    assert await reply == 2


@seeded()
async def test_a_failing_observer_is_harmless(harness: Harness) -> None:
    def fail(_: StateTransition) -> None:
        raise ZeroDivisionError

    object.__setattr__(harness.dispatcher._environment, "observe", fail)  # pyright: ignore[reportPrivateUsage]
    assert await harness.dispatcher.submit("a", "default", name) == "a"


@seeded()
async def test_nothing_is_accepted_after_closing(harness: Harness) -> None:
    await harness.until_hot("a")
    await harness.dispatcher.close(1)
    for key in ("a", "b"):
        with pytest.raises(Overloaded) as refused:
            harness.dispatcher.submit(key, "default", ignore)
        assert refused.value.retry_after_s > 0


@seeded()
async def test_all_can_be_told_at_once_also_those_who_are_being_loaded(harness: Harness) -> None:
    await harness.dispatcher.submit("a", "default", ignore)
    harness.load_gate["b"] = asyncio.Event()
    loading = harness.dispatcher.submit("b", "default", ignore)
    await harness.until(lambda: harness.dispatcher.status("b").state is ActivationState.loading)
    harness.dispatcher.notify_all(lambda handler: handler.notes.append("look again"))
    harness.load_gate["b"].set()
    await loading
    assert [harness.live[key].notes for key in ("a", "b")] == [["look again"]] * 2
    await harness.dispatcher.submit("c", "default", ignore)
    assert harness.live["c"].notes == [], "who comes later reads what is stored by then"


@seeded()
async def test_who_keeps_a_lane_is_told_in_order_the_one_that_works_first(harness: Harness) -> None:
    dispatcher, job = harness.dispatcher, HeldJob()
    assert dispatcher.kept_by("a", "lane") == []
    replies = [dispatcher.submit("a", "lane", job, "first"), dispatcher.submit("a", "other", name, "elsewhere")]
    assert dispatcher.kept_by("a", "lane") == ["first"], "also while the key is being loaded"
    await job.began.wait()
    replies += [dispatcher.submit("a", "lane", name, token) for token in ("second", "third")]
    assert dispatcher.kept_by("a", "lane") == ["first", "second", "third"] and dispatcher.kept_by("b", "lane") == []
    job.go.set()
    await asyncio.gather(*replies)
    assert dispatcher.kept_by("a", "lane") == []
