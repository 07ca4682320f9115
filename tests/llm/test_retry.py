"""How long we wait and how often we ask, on virtual time: the wire code is real, the network and the clock are not."""

import asyncio
import random
import selectors
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import httpx
import pytest

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Event
from kelpie.llm.provider.retry import RETRIED, RetryLimits, RetryPolicy, pause_before, retried, retry_after_s
from tests.llm.fakes import TransportHttp, asking, chunk, completion, world


class _VirtualSelector:
    """Instead of waiting for a timer it moves the clock there."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self.now = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def select(self, timeout: float | None) -> Any:
        assert timeout is not None, "everything waits and no timer is set"
        self.now += timeout
        return self._inner.select(0)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    selector = _VirtualSelector()
    loop = asyncio.SelectorEventLoop(cast(Any, selector))
    loop.time = lambda: selector.now
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


Answer = Callable[[httpx.Request], Coroutine[Any, Any, httpx.Response]]


async def asked(answer: Answer, limits: RetryLimits, deltas: bool = False) -> list[Event]:
    http = TransportHttp(httpx.MockTransport(answer))
    chat = OpenAIChat(world(http), Endpoint("openai", "http://provider/v1", "sk-test"), limits)
    return [event async for event in chat.stream(asking(deltas=deltas))]


def test_a_rate_limit_is_waited_out_as_long_as_the_provider_asks():
    times: list[float] = []

    async def answer(_: httpx.Request) -> httpx.Response:
        times.append(now())
        if len(times) == 1:
            return httpx.Response(429, headers={"Retry-After": "7"}, json={"error": {"message": "slow down"}})
        return httpx.Response(200, json=completion({"content": "Hi."}))

    in_virtual_time(lambda: asked(answer, RetryLimits()))
    assert len(times) == 2
    assert times[1] - times[0] == pytest.approx(7, abs=0.01)


def test_without_retry_after_the_pauses_double_with_jitter_and_follow_the_seed():
    def run() -> list[float]:
        times: list[float] = []

        async def answer(_: httpx.Request) -> httpx.Response:
            times.append(now())
            return httpx.Response(500, json={"error": {"message": "boom"}})

        with pytest.raises(ModelError):
            in_virtual_time(lambda: asked(answer, RetryLimits(attempts=5, backoff_s=1)))
        return [after - before for before, after in pairwise(times)]

    pauses = run()
    assert len(pauses) == 4
    for number, pause in enumerate(pauses):
        assert 0.5 * 2**number <= pause <= 2**number + 0.01
    assert run() == pauses


def test_a_stream_that_does_not_begin_is_asked_for_again():
    times: list[float] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        times.append(now())
        if len(times) == 1:
            await asyncio.sleep(1000)
        return await streaming((0, data(chunk({"content": "Hi."}, "stop"))))(request)

    given = in_virtual_time(lambda: asked(answer, RetryLimits(first_byte_s=50), deltas=True))
    assert len(given) == 2
    assert 50 < times[1] < 52


def test_the_time_for_all_attempts_is_bounded():
    async def answer(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(40)
        return httpx.Response(500)

    async def main() -> tuple[ModelError, float]:
        with pytest.raises(ModelError) as caught:
            await asked(answer, RetryLimits(attempts=100, total_s=100, backoff_s=1))
        return caught.value, now()

    error, ended = in_virtual_time(main)
    assert error.kind is ModelFault.timeout
    assert "100 s in all" in error.message
    assert ended == pytest.approx(100, abs=0.01)


def test_no_pause_is_begun_that_cannot_end_in_time():
    async def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers={"Retry-After": "30"}, json={"error": {"message": "slow down"}})

    async def main() -> tuple[ModelError, float]:
        with pytest.raises(ModelError) as caught:
            await asked(answer, RetryLimits(total_s=20))
        return caught.value, now()

    error, ended = in_virtual_time(main)
    assert (error.kind, error.retry_after_s) == (ModelFault.rate_limit, 30)
    assert ended < 1


class _Stream(httpx.AsyncByteStream):
    def __init__(self, pieces: list[tuple[float, bytes]]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for pause_s, piece in self._pieces:
            await asyncio.sleep(pause_s)
            yield piece


def streaming(*pieces: tuple[float, bytes]) -> Answer:
    async def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Stream(list(pieces)))

    return answer


def data(value: dict[str, Any]) -> bytes:
    return b"data: " + httpx.Response(200, json=value).content + b"\n\n"


def test_keep_alives_hold_a_thinking_model_alive_and_silence_does_not():
    limits = RetryLimits(attempts=1, total_s=1000, first_byte_s=10, idle_s=30)
    alive = [(25.0, b": still thinking\n\n")] * 4
    last = data(chunk({"content": "Hi."}, "stop")) + b"data: [DONE]\n\n"
    given = in_virtual_time(lambda: asked(streaming(*alive, (25, last)), limits, deltas=True))
    assert len(given) == 2

    async def main() -> tuple[ModelError, float]:
        with pytest.raises(ModelError) as caught:
            await asked(streaming(*alive, (35, last)), limits, deltas=True)
        return caught.value, now()

    error, ended = in_virtual_time(main)
    assert error.kind is ModelFault.timeout
    assert ended == pytest.approx(130, abs=0.01)


def test_a_slow_caller_does_not_use_up_the_providers_time():
    words = [(1.0, data(chunk({"content": "x"}))) for _ in range(3)]
    end = (1.0, data(chunk({}, "stop")) + b"data: [DONE]\n\n")

    async def main() -> int:
        http = TransportHttp(httpx.MockTransport(streaming(*words, end)))
        limits = RetryLimits(attempts=1, total_s=1000, first_byte_s=5, idle_s=5)
        chat = OpenAIChat(world(http), Endpoint("openai", "http://provider/v1"), limits)
        count = 0
        async for _ in chat.stream(asking(deltas=True)):
            await asyncio.sleep(60)
            count += 1
        return count

    assert in_virtual_time(main) == 4


def test_the_pause_never_undercuts_the_provider_and_never_exceeds_the_cap():
    limits = RetryLimits(backoff_s=1, backoff_s_max=8, retry_after_s_max=60)
    rng = random.Random(1)

    def failed(after: float | None) -> ModelError:
        return ModelError(ModelFault.rate_limit, "slow down", retry_after_s=after)

    assert all(4 <= pause_before(9, failed(None), limits, rng) <= 8 for _ in range(50))
    assert pause_before(1, failed(30), limits, rng) == 30
    assert pause_before(1, failed(9999), limits, rng) == 60
    assert 0.5 <= pause_before(1, failed(0), limits, rng) <= 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_reading_retry_after(headers: dict[str, str], seconds: float | None):
    assert retry_after_s(headers, 60_000_000) == seconds


def attempts_with(error: ModelError, told: int) -> tuple[int, list[int]]:
    """How often an attempt that yields `told` things and then fails is made, and what the caller got."""
    made = 0
    got: list[int] = []

    async def attempt(_: RetryPolicy) -> AsyncGenerator[int, None]:
        nonlocal made
        made += 1
        for number in range(told):
            yield number
        raise error

    async def main() -> None:
        async for number in retried(attempt, replace(RetryLimits(), attempts=3), random.Random(1)):
            got.append(number)

    with pytest.raises(ModelError):
        in_virtual_time(main)
    return made, got


@pytest.mark.parametrize("kind", list(ModelFault))
def test_only_what_may_pass_is_tried_again_and_only_before_the_first_word(kind: ModelFault):
    never = {
        ModelFault.authentication,
        ModelFault.insufficient_credits,
        ModelFault.bad_request,
        ModelFault.context_overflow,
        ModelFault.instructions_overflow,
    }
    assert (kind in RETRIED) == (kind not in never)
    error = ModelError(kind, "no")
    assert attempts_with(error, told=0) == (3 if kind in RETRIED else 1, [])
    assert attempts_with(error, told=2) == (1, [0, 1])
