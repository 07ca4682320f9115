"""Submitting jobs: results, lanes, order, bounds, and reaching the live handler."""

import asyncio
from typing import Any

import pytest

from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.errors import MailboxFull, NotFound, Overloaded
from tests.actors.theatre import Handler, Play, Theatre, ignore, name, number, play, raising


@play()
async def test_a_job_gets_the_handler_and_its_result_comes_back(theatre: Theatre) -> None:
    assert await theatre.dispatcher.submit("a", "default", name) == "a"
    assert await theatre.dispatcher.submit("b", "default", name) == "b"
    assert theatre.loads == ["a", "b"]


@play()
async def test_a_hot_key_is_loaded_once(theatre: Theatre) -> None:
    assert [await theatre.dispatcher.submit("a", "default", number) for _ in range(5)] == [1] * 5
    assert theatre.loads == ["a"]


@play()
async def test_the_states_of_a_first_use(theatre: Theatre) -> None:
    await theatre.dispatcher.submit("a", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loaded)
    assert theatre.states() == [
        ActivationState.loading,
        ActivationState.loaded,
        ActivationState.running,
        ActivationState.loaded,
    ]


@play()
async def test_a_cold_key_has_no_state_to_speak_of(theatre: Theatre) -> None:
    assert theatre.dispatcher.status("a").state is ActivationState.unloaded
    assert theatre.dispatcher.handler("a") is None
    assert not theatre.dispatcher.notify("a", lambda _: None)
    assert theatre.seen == []


@play()
async def test_the_jobs_error_goes_to_the_caller_and_harms_nothing_else(theatre: Theatre) -> None:
    with pytest.raises(ZeroDivisionError):
        await theatre.dispatcher.submit("a", "default", raising(ZeroDivisionError()))
    with pytest.raises(NotFound):
        await theatre.dispatcher.submit("a", "default", raising(NotFound("block", "x")))
    assert await theatre.dispatcher.submit("a", "default", number) == 1


@play()
async def test_a_lane_is_first_in_first_out_and_one_at_a_time(theatre: Theatre) -> None:
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

    replies = [theatre.dispatcher.submit("a", "default", job(n)) for n in range(20)]
    assert await asyncio.gather(*replies) == list(range(20))
    assert order == list(range(20))


@play()
async def test_lanes_of_one_key_run_beside_each_other(theatre: Theatre) -> None:
    first, second = Play("first"), Play("second")
    one = theatre.dispatcher.submit("a", "one", first)
    two = theatre.dispatcher.submit("a", "two", second)
    await first.began.wait()
    await second.began.wait()
    assert first.handler is second.handler
    assert theatre.dispatcher.status("a").state is ActivationState.running
    second.go.set()
    assert await two == "second"
    assert not one.done()
    assert theatre.dispatcher.status("a").state is ActivationState.running
    first.go.set()
    assert await one == "first"
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loaded)
    assert theatre.states() == [
        ActivationState.loading,
        ActivationState.loaded,
        ActivationState.running,
        ActivationState.loaded,
    ]


@play()
async def test_a_slow_key_does_not_hold_up_another(theatre: Theatre) -> None:
    slow = Play()
    waiting = theatre.dispatcher.submit("a", "default", slow)
    await slow.began.wait()
    assert await theatre.dispatcher.submit("b", "default", name) == "b"
    slow.go.set()
    await waiting


@play(mailbox_size=3)
async def test_a_full_mailbox_refuses_at_once_and_counts_all_lanes(theatre: Theatre) -> None:
    one, two = Play(), Play()
    accepted = [theatre.dispatcher.submit("a", "one", one), theatre.dispatcher.submit("a", "two", two)]
    await one.began.wait()
    await two.began.wait()
    accepted += [theatre.dispatcher.submit("a", lane, ignore) for lane in ("one", "one", "two")]
    for lane in ("one", "two"):
        with pytest.raises(MailboxFull) as refused:
            theatre.dispatcher.submit("a", lane, ignore)
        assert refused.value.retry_after_s > 0
    assert await theatre.dispatcher.submit("b", "one", name) == "b"
    one.go.set()
    two.go.set()
    await asyncio.gather(*accepted)
    await theatre.dispatcher.submit("a", "one", ignore)


@play(mailbox_size=3)
async def test_the_mailbox_is_bounded_while_the_key_is_loading(theatre: Theatre) -> None:
    theatre.load_gate["a"] = asyncio.Event()
    accepted = [theatre.dispatcher.submit("a", "default", ignore) for _ in range(3)]
    with pytest.raises(MailboxFull):
        theatre.dispatcher.submit("a", "default", ignore)
    theatre.load_gate["a"].set()
    await asyncio.gather(*accepted)


@play(lanes_max=2)
async def test_lanes_beyond_the_bound_wait_for_a_turn(theatre: Theatre) -> None:
    plays = [Play(n) for n in range(4)]
    replies = [theatre.dispatcher.submit("a", f"lane {n}", job) for n, job in enumerate(plays)]
    await plays[1].began.wait()
    await asyncio.sleep(1)
    assert [job.began.is_set() for job in plays] == [True, True, False, False]
    for job in plays:
        job.go.set()
    assert await asyncio.gather(*replies) == [0, 1, 2, 3]


@play(lanes_max=1)
async def test_lanes_that_wait_for_each_other_take_turns(theatre: Theatre) -> None:
    order: list[str] = []

    def job(name: str) -> Any:
        async def work(_: Handler) -> None:
            order.append(name)

        return work

    asked = (("one", "1a"), ("one", "1b"), ("one", "1c"), ("two", "2a"), ("two", "2b"))
    await asyncio.gather(*[theatre.dispatcher.submit("a", lane, job(name)) for lane, name in asked])
    assert order == ["1a", "2a", "1b", "2b", "1c"]


@play()
async def test_the_live_handler_can_be_reached_beside_a_running_job(theatre: Theatre) -> None:
    job = Play()
    reply = theatre.dispatcher.submit("a", "default", job)
    await job.began.wait()
    assert theatre.dispatcher.handler("a") is job.handler
    assert theatre.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    assert job.handler is not None and job.handler.notes == ["edited"]
    job.go.set()
    await reply


@play()
async def test_what_is_told_during_a_load_reaches_the_handler_before_its_first_job(theatre: Theatre) -> None:
    async def notes(handler: Handler) -> list[str]:
        return list(handler.notes)

    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", notes)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    assert theatre.dispatcher.handler("a") is None
    assert theatre.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    theatre.load_gate["a"].set()
    assert await reply == ["edited"]


@play(mailbox_size=2)
async def test_more_told_during_a_load_than_is_kept_loads_again(theatre: Theatre) -> None:
    theatre.load_gate["a"] = asyncio.Event()
    reply = theatre.dispatcher.submit("a", "default", number)
    await theatre.until(lambda: theatre.dispatcher.status("a").state is ActivationState.loading)
    for _ in range(3):
        theatre.dispatcher.notify("a", lambda handler: handler.notes.append("edited"))
    theatre.load_gate["a"].set()
    assert await reply == 2


@play()
async def test_a_failing_observer_is_harmless(theatre: Theatre) -> None:
    def fail(_: StateTransition) -> None:
        raise ZeroDivisionError

    object.__setattr__(theatre.dispatcher._environment, "observe", fail)  # pyright: ignore[reportPrivateUsage]
    assert await theatre.dispatcher.submit("a", "default", name) == "a"


@play()
async def test_nothing_is_accepted_after_closing(theatre: Theatre) -> None:
    await theatre.until_hot("a")
    await theatre.dispatcher.close(1)
    for key in ("a", "b"):
        with pytest.raises(Overloaded) as refused:
            theatre.dispatcher.submit(key, "default", ignore)
        assert refused.value.retry_after_s > 0


@play()
async def test_all_can_be_told_at_once_also_those_who_are_being_loaded(theatre: Theatre) -> None:
    await theatre.dispatcher.submit("a", "default", ignore)
    theatre.load_gate["b"] = asyncio.Event()
    loading = theatre.dispatcher.submit("b", "default", ignore)
    await theatre.until(lambda: theatre.dispatcher.status("b").state is ActivationState.loading)
    theatre.dispatcher.notify_all(lambda handler: handler.notes.append("look again"))
    theatre.load_gate["b"].set()
    await loading
    assert [theatre.live[key].notes for key in ("a", "b")] == [["look again"]] * 2
    await theatre.dispatcher.submit("c", "default", ignore)
    assert theatre.live["c"].notes == [], "who comes later reads what is stored by then"
