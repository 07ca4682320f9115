"""Limits shared by all agents: what is let through when, who waits for whom, and what is told when waiting is over."""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kelpie.core.access.consumers import Consumer
from kelpie.core.conversations.messages import Image, Message, Role, Text, ToolCall, ToolReturn, Usage
from kelpie.core.errors import ConfigurationError, ModelError, ModelFault, Overloaded
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.models.image_limits import TOKENS_PER_IMAGE
from kelpie.core.models.prices import Price
from kelpie.core.models.provider_limits import ProviderLimits
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.fairness.processor_time import SECOND_NS, ProcessorTime
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.limits import limiter as limiter_module
from kelpie.llm.limits.limited_provider import LimitedProvider
from kelpie.llm.limits.limiter import Cost, Limiter
from kelpie.llm.limits.sliding_window import SlidingWindow
from kelpie.llm.provider.interface import Event, PreparedMessage, Reply, Request, TextDelta
from kelpie.llm.provider.retry import RetryLimits
from tests.llm.fakes import asking
from tests.llm.test_retry import in_virtual_time, now

ORGANIZATION = "org-1"


async def call(
    limiter: Limiter,
    agent: str,
    log: list[Any],
    lasts_s: float = 1.0,
    cost: Cost | None = None,
    organization: str = ORGANIZATION,
) -> None:
    async with limiter.reserve(Consumer(organization, agent), cost or Cost()):
        log.append((now(), agent))
        await asyncio.sleep(lasts_s)


def test_a_window_counts_never_too_little_and_forgets():
    window = SlidingWindow(10, 60.0)
    window.add(4, 0.5)
    window.add(4, 30.0)
    assert window.spent(30.0) == 8
    assert window.opens_at(2, 30.0) <= 30.0
    assert 60.5 <= window.opens_at(3, 30.0) <= 61.5
    assert 90.0 <= window.opens_at(10, 30.0) <= 91.5
    assert window.opens_at(1000, 30.0) == window.opens_at(10, 30.0)  # more than fits at all waits for an empty one
    assert window.spent(200.0) == 0
    window.add(1, 300.0)
    assert window.spent(361.0) == 0 and window.opens_at(10, 361.0) == 361.0, "it leaves at that very moment"
    assert window.opens_at(1000, 361.0) == 361.0


def test_calls_at_once():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=2), 30.0)
        log: list[Any] = []
        await asyncio.gather(*(call(limiter, f"agent {number}", log) for number in range(5)))
        assert [moment for moment, _ in log] == [0, 0, 1, 1, 2]
        assert limiter.waiting == 0

    in_virtual_time(main)


def test_a_call_that_is_cancelled_in_the_moment_it_is_let_in_leaves_its_place():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1), 30.0)
        log: list[Any] = []
        async with limiter.reserve(Consumer(ORGANIZATION, "first"), Cost()):
            second = asyncio.ensure_future(call(limiter, "second", log))
            await asyncio.sleep(0)
        second.cancel()  # let in by the end of the first, and does not know it yet
        await asyncio.wait((second,))
        await call(limiter, "third", log)
        assert log == [(0, "third")]

    in_virtual_time(main)


@pytest.mark.parametrize("late", [True, False])
def test_a_place_that_comes_in_the_last_moment_is_taken(*, late: bool):
    async def main() -> None:
        limiter, log = Limiter("openai", ProviderLimits(calls=1), 10.0), list[Any]()
        first = limiter.reserve(Consumer(ORGANIZATION, "first"), Cost())
        await first.__aenter__()
        loop = asyncio.get_running_loop()

        def leave() -> None:
            limiter._leave(Consumer(ORGANIZATION, "first"))  # pyright: ignore[reportPrivateUsage]
            limiter._pump()  # pyright: ignore[reportPrivateUsage]

        if not late:
            loop.call_at(10.0, leave)
        second = asyncio.ensure_future(call(limiter, "second", log))
        for _ in range(5):
            await asyncio.sleep(0)
        if late:  # the limit of the wait is over already, and the one that waits has not heard of it
            loop.call_at(10.0, leave)
        await second
        assert log == [(10, "second")] and limiter.waiting == 0
        await call(limiter, "third", log)
        assert log[1:] == [(11, "third")]

    in_virtual_time(main)


def test_a_call_that_is_cancelled_in_the_moment_it_is_let_in_costs_nothing():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1, tokens=100), 30.0)
        log: list[Any] = []
        async with limiter.reserve(Consumer(ORGANIZATION, "first"), Cost()):
            second = asyncio.ensure_future(call(limiter, "second", log, cost=Cost(90)))
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait((second,))
        await call(limiter, "third", log, cost=Cost(90))
        assert log == [(0, "third")]

    in_virtual_time(main)


def test_nobody_waits_for_one_that_gave_up():
    async def main() -> None:
        limiter, log = Limiter("openai", ProviderLimits(tokens=100), 100.0), list[Any]()
        await call(limiter, "first", log, 0.0, Cost(50))
        large = asyncio.ensure_future(call(limiter, "large", log, cost=Cost(90)))
        small = asyncio.ensure_future(call(limiter, "small", log, cost=Cost(10)))
        await asyncio.sleep(1)
        assert limiter.waiting == 2, "nobody passes a call that waits"
        large.cancel()
        await small
        assert log[1:] == [(1, "small")]

    in_virtual_time(main)


def test_what_a_call_did_not_use_is_there_for_others_at_once():
    async def main() -> None:
        limiter, log = Limiter("openai", ProviderLimits(tokens=100), 100.0), list[Any]()
        async with limiter.reserve(Consumer(ORGANIZATION, "first"), Cost(90)) as reservation:
            waiting = asyncio.ensure_future(call(limiter, "waiting", log, cost=Cost(50)))
            await asyncio.sleep(1)
            reservation.settle(Cost(10))
            await asyncio.sleep(1)
            assert log == [(1, "waiting")]
        await waiting

    in_virtual_time(main)


def test_requests_a_minute():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(requests=3), 200.0)
        log: list[Any] = []
        await asyncio.gather(*(call(limiter, f"agent {number}", log, 0.1) for number in range(7)))
        moments = [moment for moment, _ in log]
        assert moments[:3] == [0, 0, 0]
        assert all(later - earlier >= 60 for earlier, later in zip(moments, moments[3:], strict=False))
        assert moments[-1] < 2 * 62

    in_virtual_time(main)


def test_tokens_a_minute_are_corrected_by_what_was_used():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(tokens=100), 100.0)
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(tokens=60)) as reservation:
            reservation.settle(Cost(tokens=10))
            reservation.settle(Cost(tokens=99))  # only the first time counts
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(tokens=60)):
            assert now() == 0
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(tokens=60)) as reservation:
            assert 60 <= now() <= 62
            reservation.settle(Cost(tokens=500))
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(tokens=1)):
            assert 120 <= now() <= 124

    in_virtual_time(main)


def test_agents_take_turns_and_nobody_overtakes():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1), 1000.0)
        log: list[Any] = []
        calls = [call(limiter, "greedy", log) for _ in range(6)]
        calls += [call(limiter, "one", log), call(limiter, "two", log), call(limiter, "two", log)]
        running = [asyncio.ensure_future(each) for each in calls]
        await asyncio.sleep(0.5)
        running.append(asyncio.ensure_future(call(limiter, "late", log)))
        await asyncio.gather(*running)
        order = [agent for _, agent in log]
        assert order[:6] == ["greedy", "one", "two", "late", "greedy", "two"], "who was served before comes after"
        assert order[6:] == ["greedy", "greedy", "greedy", "greedy"]
        assert [moment for moment, _ in log] == list(range(10))

    in_virtual_time(main)


def test_within_an_agent_the_order_is_kept():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1), 1000.0)
        order: list[int] = []

        async def numbered(number: int) -> None:
            async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost()):
                order.append(number)
                await asyncio.sleep(1)

        await asyncio.gather(*(numbered(number) for number in range(5)))
        assert order == list(range(5))

    in_virtual_time(main)


def test_waiting_is_bounded_and_names_the_limit():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1), 30.0)
        log: list[Any] = []
        first = asyncio.ensure_future(call(limiter, "a", log, 100.0))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="limit of openai is reached: 1 calls at once") as caught:
            await call(limiter, "b", log)
        assert now() == 30 and caught.value.retry_after_s >= 1 and limiter.waiting == 0
        await first
        await call(limiter, "b", log)
        assert [agent for _, agent in log] == ["a", "b"]

    in_virtual_time(main)


def test_what_cannot_fit_in_time_is_refused_at_once():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(requests=1, dollars=1.0), 30.0)
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost()):
            pass
        with pytest.raises(Overloaded, match="1 requests a minute") as caught:
            await call(limiter, "a", [])
        assert now() == 0 and 60 <= caught.value.retry_after_s <= 61
        await asyncio.sleep(61)
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(micros=400_000)) as reservation:
            reservation.settle(Cost(micros=1_200_000))
        await asyncio.sleep(62)
        with pytest.raises(Overloaded, match="1 dollars a day") as caught:
            await call(limiter, "a", [], cost=Cost(micros=1))
        assert 23 * 3600 < caught.value.retry_after_s < 25 * 3600

    in_virtual_time(main)


def test_money_spent_before_a_restart_is_remembered():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(dollars=1.0), 30.0)
        limiter.remember(600_000, 20 * 3600)
        limiter.remember(400_000, 3600)
        with pytest.raises(Overloaded, match="dollars") as caught:
            await call(limiter, "a", [], cost=Cost(micros=1))
        assert 4 * 3600 <= caught.value.retry_after_s <= 4.5 * 3600
        await asyncio.sleep(4.5 * 3600)
        await call(limiter, "a", [], cost=Cost(micros=500_000))

    in_virtual_time(main)


@pytest.mark.parametrize("seed", range(20))
def test_cancelled_callers_leave_nothing_behind(seed: int):
    async def main() -> None:
        rng = random.Random(seed)
        limiter = Limiter("openai", ProviderLimits(calls=2, tokens=50), 500.0)
        log: list[Any] = []
        tasks = [
            asyncio.ensure_future(call(limiter, f"agent {rng.randrange(4)}", log, rng.random(), Cost(rng.randrange(9))))
            for _ in range(30)
        ]
        for task in rng.sample(tasks, 15):
            await asyncio.sleep(rng.random())
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limiter.waiting == 0
        await asyncio.sleep(200)
        began = now()
        await asyncio.gather(*(call(limiter, "last", log) for _ in range(2)))
        assert now() == began + 1  # both places are free

    in_virtual_time(main)


def test_an_organization_has_its_share_of_the_calls_at_once_and_leaves_the_rest_to_others():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=4), 30.0, OrganizationShare(0.75, organizations=2))
        log: list[Any] = []
        busy = [asyncio.ensure_future(call(limiter, f"busy {number}", log)) for number in range(7)]
        await asyncio.sleep(0.5)
        assert [agent for _, agent in log] == ["busy 0", "busy 1", "busy 2"] and limiter.waiting == 4
        await call(limiter, "other", log, organization="org-2")
        assert log[3] == (0.5, "other")
        await asyncio.gather(*busy)
        assert [moment for moment, agent in log if agent.startswith("busy")] == [0, 0, 0, 1, 1, 1.5, 2]
        assert not limiter._running_of  # pyright: ignore[reportPrivateUsage]
        log.clear()
        await asyncio.gather(*(call(limiter, f"later {number}", log) for number in range(3)))
        assert len({moment for moment, _ in log}) == 1  # what has ended is no part of the share

    in_virtual_time(main)


def test_one_organization_alone_has_all_calls():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=4), 30.0, OrganizationShare(0.75, organizations=1))
        log: list[Any] = []
        await asyncio.gather(*(call(limiter, f"agent {number}", log) for number in range(4)))
        assert [moment for moment, _ in log] == [0, 0, 0, 0]

    in_virtual_time(main)


def test_so_many_calls_of_one_organization_wait_and_another_waits_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limiter_module, "WAITING_MAX", 2)

    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(calls=1), 30.0)
        log: list[Any] = []
        waiting = [asyncio.ensure_future(call(limiter, f"busy {number}", log)) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 calls of this organization are already waiting"):
            await call(limiter, "one more", log)
        assert now() == 0
        await call(limiter, "other", log, organization="org-2")
        await asyncio.gather(*waiting)
        assert sorted(agent for _, agent in log) == ["busy 0", "busy 1", "busy 2", "other"]

    in_virtual_time(main)


def test_a_call_is_settled_once_and_its_expected_cost_is_taken_back():
    async def main() -> None:
        limiter = Limiter("openai", ProviderLimits(tokens=1000, dollars=1.0), 5.0)
        async with limiter.reserve(Consumer(ORGANIZATION, "a"), Cost(900, 900_000)) as reservation:
            with pytest.raises(Overloaded, match="1000 tokens a minute"):
                await call(limiter, "b", [], cost=Cost(200))
            reservation.settle(Cost(300, 300_000))
            reservation.settle(Cost(600, 600_000))
        await call(limiter, "b", [], cost=Cost(700, 700_000))
        with pytest.raises(Overloaded):
            await call(limiter, "b", [], cost=Cost(1))

    in_virtual_time(main)


# --- a provider within limits --------------------------------------------------------------------------------------


class _Scripted(DemoProvider):
    """Does what it is told, one entry per attempt: an error, or the usage of its reply."""

    name = "openai"

    def __init__(self, *script: ModelError | Usage) -> None:
        super().__init__()
        self.script = list(script)
        self.running = 0
        self.asked: list[float] = []

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.running += 1
        self.asked.append(now())
        try:
            await asyncio.sleep(1)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if isinstance(step, ModelError):
                raise step
            yield TextDelta("hi")
            yield Reply((Text("hi"),), (), "stop", step)
        finally:
            self.running -= 1


LIMITS = RetryLimits(attempts=3, total_s=600, backoff_s=4.0)
BUSY = ModelError(ModelFault.rate_limit, "busy", retry_after_s=10)


def bounded(
    inner: _Scripted, bounds: ProviderLimits, prices: dict[str, Price] | None = None, wait_s: float = 30.0
) -> LimitedProvider:
    return LimitedProvider(inner, Limiter("openai", bounds, wait_s), LIMITS, Prices(prices or {}), random.Random(1))


async def ask(provider: LimitedProvider, agent: str = "a", **fields: Any) -> list[Event]:
    return [event async for event in provider.stream(asking(consumer=Consumer(ORGANIZATION, agent), **fields))]


def test_a_retry_is_a_request_and_holds_no_place_while_it_pauses():
    async def main() -> None:
        inner = _Scripted(BUSY, Usage(5, 5, 10))
        provider = bounded(inner, ProviderLimits(calls=1, requests=3))
        first = asyncio.ensure_future(ask(provider, "a"))
        await asyncio.sleep(1.5)
        assert (await ask(provider, "b"))[-1].content == (Text("hi"),)  # in the pause of the other
        await first
        assert inner.asked == [0, 1.5, 11]
        with pytest.raises(ModelError, match="3 requests a minute") as caught:
            await ask(provider)
        assert caught.value.kind is ModelFault.rate_limit
        assert (caught.value.retry_after_s or 0) > 30
        assert "KELPIE_PROVIDER_LIMITS" in (caught.value.hint or "")

    in_virtual_time(main)


def test_no_room_is_not_tried_again():
    async def main() -> None:
        inner = _Scripted(Usage(5, 5, 10))
        provider = bounded(inner, ProviderLimits(calls=1), wait_s=0.25)
        first = asyncio.ensure_future(ask(provider, "a"))
        await asyncio.sleep(0)
        with pytest.raises(ModelError, match="1 calls at once"):
            await ask(provider, "b")
        assert now() == 0.25
        await first

    in_virtual_time(main)


def test_money_is_counted_by_price():
    async def main() -> None:
        inner = _Scripted(Usage(100_000, 50_000, 150_000))
        provider = bounded(inner, ProviderLimits(dollars=1.5), {"openai/gpt-4o-mini": Price(2.5, 10.0)})
        await ask(provider)  # 0.25 + 0.50 dollars
        await ask(provider)
        with pytest.raises(ModelError, match=r"1\.5 dollars a day"):
            await ask(provider)
        with pytest.raises(ModelError, match="The price of openai/other is unknown") as caught:
            await ask(provider, model="other")
        assert caught.value.kind is ModelFault.bad_request
        assert "KELPIE_MODEL_PRICES" in (caught.value.hint or "")

    in_virtual_time(main)


def test_tokens_count_by_the_server_and_a_refused_call_costs_nothing():
    async def main() -> None:
        inner = _Scripted(ModelError(ModelFault.bad_request, "no"), Usage(10, 980, 990), Usage(1, 1, 2))
        provider = bounded(inner, ProviderLimits(tokens=1000))
        with pytest.raises(ModelError, match="no"):
            await ask(provider, text="x" * 3600)
        await ask(provider, text="x" * 3600)
        with pytest.raises(ModelError, match="1000 tokens a minute"):
            await ask(provider, text="x" * 3600)
        await ask(provider)  # a short one still fits

    in_virtual_time(main)


def test_a_server_that_counts_nothing_is_assumed_to_have_used_the_prompt():
    async def main() -> None:
        provider = bounded(_Scripted(Usage(0, 0, 0)), ProviderLimits(tokens=1000))
        await ask(provider, text="x" * 3600)
        with pytest.raises(ModelError, match="1000 tokens a minute"):
            await ask(provider, text="x" * 3600)

    in_virtual_time(main)


def test_a_call_that_breaks_in_its_answer_costs_its_prompt():
    class Breaks(_Scripted):
        async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
            yield TextDelta("hi")
            raise ModelError(ModelFault.bad_request, "cut off")

    async def main() -> None:
        provider = bounded(Breaks(), ProviderLimits(tokens=1000))
        with pytest.raises(ModelError, match="cut off"):
            await ask(provider, text="x" * 3600)
        with pytest.raises(ModelError, match="1000 tokens a minute"):
            await ask(provider, text="x" * 3600)

    in_virtual_time(main)


def prepared(*content: Text | Image, **fields: Any) -> PreparedMessage:
    agent = AgentId("agent-00000000-0000-4000-8000-000000000001")
    message = MessageId("message-00000000-0000-4000-8000-000000000001")
    return PreparedMessage(Message(message, agent, Role.user, 0, content, **fields))


def test_the_expected_cost_counts_all_of_a_prompt_and_a_picture_as_what_it_costs():
    async def expected(*messages: PreparedMessage) -> int:
        provider = bounded(_Scripted(Usage(0, 0, 0)), ProviderLimits(tokens=1_000_000))
        await ask(provider, system="", messages=messages)
        return provider.limiter._tokens.spent(now())  # pyright: ignore[reportPrivateUsage]

    async def main() -> None:
        returned = ToolReturn("call-1", "read", ok=True, text="x" * 800)
        assert await expected(prepared(Text("x" * 400))) == 101
        assert await expected(prepared(tool_calls=(ToolCall("call-1", "read", "y" * 400),))) == 101
        assert await expected(prepared(tool_returns=(returned,))) == 201
        picture = Image({"type": "base64", "media_type": "image/png", "data": "A" * 40_000})
        assert await expected(prepared(Text("x" * 400), picture)) == 101 + TOKENS_PER_IMAGE
        sent = prepared(Text("x" * 400), picture)
        sent.wire["form"] = b"x" * 400 + b"A" * 40_000
        assert await expected(sent) == 101 + TOKENS_PER_IMAGE

    in_virtual_time(main)


def test_a_call_waits_for_its_organizations_share_of_the_processor():
    async def main() -> None:
        time = ProcessorTime(lambda: int(now() * SECOND_NS), 0.5)
        await time.admit("another")
        usage = await time.admit(ORGANIZATION)
        assert usage is not None
        usage.add(SECOND_NS)
        inner = _Scripted(Usage(5, 5, 10))
        await usage.run(ask(bounded(inner, ProviderLimits(calls=1))))
        assert inner.asked[0] > 0.9, "until what the organization has used is paid for"

    in_virtual_time(main)


def test_money_cannot_be_limited_without_a_price():
    unpriced = _Scripted()
    unpriced.name = "xai"
    with pytest.raises(ConfigurationError, match="the prices of its models are unknown; set KELPIE_MODEL_PRICES"):
        bounded(unpriced, ProviderLimits(dollars=1.0), {"groq/*": Price(1, 1)})


def test_a_call_that_never_ends_is_given_up_and_its_place_is_free():
    class Stuck(_Scripted):
        async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
            yield TextDelta("hi")
            await asyncio.sleep(10_000)

    async def main() -> None:
        provider = bounded(Stuck(), ProviderLimits(calls=1))
        with pytest.raises(ModelError) as caught:
            await ask(provider)
        assert (caught.value.kind, now()) == (ModelFault.timeout, 600)
        async with provider.limiter.reserve(Consumer(ORGANIZATION, "b"), Cost()):
            assert now() == 600

    in_virtual_time(main)
