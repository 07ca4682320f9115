"""The chain of models: who is asked when one fails, when nobody is, and what is told in the end."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.conversations.messages import Text, Usage
from kelpie.core.errors import ConfigurationError, InvalidInput, ModelError, ModelFault, NotFound
from kelpie.core.settings.settings import Settings
from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.provider.interface import Event, ModelInfo, Reply, Request, TextDelta
from kelpie.llm.routing.fallback import CHAIN_MAX, CURABLE, chain_of
from kelpie.llm.routing.models import Models
from tests.llm.fakes import asking, world

OK = Reply((Text("hi"),), (), "stop", Usage(1, 1, 2))


class _Model(DemoProvider):
    """A provider that says its events, or raises."""

    def __init__(self, name: str, *events: Event | ModelError, max_tokens: int | None = None) -> None:
        super().__init__()
        self.name = name
        self._events = events
        self._max_tokens = max_tokens
        self.asked: list[Request] = []
        self.closed = 0

    def describe(self, name: str) -> ModelInfo:
        return replace(super().describe(name), max_tokens=self._max_tokens)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        try:
            for event in self._events:
                if isinstance(event, ModelError):
                    raise event
                yield event
        finally:
            self.closed += 1


def failing(name: str, kind: ModelFault = ModelFault.server) -> _Model:
    return _Model(name, ModelError(kind, f"{name} failed.", detail="d", hint="h", retry_after_s=3))


async def ask(providers: Sequence[_Model], chain: tuple[str, ...] = (), **fields: Any) -> list[Event]:
    free = tuple(f"{each.name}/*=0/0" for each in providers)
    models = Models(world(), Settings(model_fallbacks=chain, model_prices=free), providers)
    speaker, name = models.provider(f"{providers[0].name}/m")
    async with aclosing(speaker.stream(asking(model=name, **fields))) as events:
        return [event async for event in events]


@pytest.mark.parametrize("kind", sorted(CURABLE))
async def test_the_next_model_is_asked_when_another_can_cure_it(kind: ModelFault):
    first, second = failing("a", kind), _Model("b", TextDelta("h"), OK)
    events = await ask([first, second], ("b/n",), deltas=True)
    assert events == [TextDelta("h"), replace(OK, answered_by="b/n")]
    assert [request.model for request in (*first.asked, *second.asked)] == ["m", "n"]


@pytest.mark.parametrize("kind", sorted(set(ModelFault) - CURABLE))
async def test_what_is_wrong_with_the_request_is_told_at_once(kind: ModelFault):
    first, second = failing("a", kind), _Model("b", OK)
    with pytest.raises(ModelError, match="a failed") as caught:
        await ask([first, second], ("b/n",))
    assert caught.value.kind is kind and second.asked == []


async def test_a_reply_costs_what_the_model_asks_that_gave_it():
    used = replace(OK, usage=Usage(100, 10, 110))
    for first, cost in ((_Model("a", used), 120), (failing("a"), 600)):
        models = Models(
            world(),
            Settings(model_fallbacks=("b/n",), model_prices=("a/m=1/2", "b/n=5/10")),
            [first, _Model("b", used)],
        )
        async with aclosing(models.provider("a/m")[0].stream(asking(model="m"))) as events:
            reply = [event async for event in events][-1]
        assert isinstance(reply, Reply) and (reply.usage.cost_micros, reply.usage.unpriced_calls) == (cost, 0)


async def test_the_agents_own_answer_names_nobody():
    assert await ask([_Model("a", OK), _Model("b", OK)], ("b/n",)) == [OK]


async def test_nobody_is_asked_once_something_was_told():
    second = _Model("b", OK)
    with pytest.raises(ModelError, match="broke"):
        await ask([_Model("a", TextDelta("h"), ModelError(ModelFault.connection, "broke")), second], ("b/n",))
    assert second.asked == []


async def test_the_chain_goes_on_and_the_first_error_is_told_when_all_fail():
    providers = [failing("a", ModelFault.rate_limit), failing("b", ModelFault.bad_request), failing("c")]
    with pytest.raises(ModelError) as caught:
        await ask(providers, ("b/n", "c/o", "b/n"))
    assert [len(provider.asked) for provider in providers] == [1, 1, 1]
    error = caught.value
    assert error.message == "a failed. The fallback models failed too: b/n, c/o."
    assert (error.kind, error.detail, error.hint, error.retry_after_s) == (ModelFault.rate_limit, "d", "h", 3)
    third = _Model("c", OK)
    assert await ask([*providers[:2], third], ("b/n", "c/o")) == [replace(OK, answered_by="c/o")]


async def test_a_stream_that_breaks_in_the_place_of_another_is_told():
    broken = _Model("b", TextDelta("h"), ModelError(ModelFault.connection, "broke"))
    with pytest.raises(ModelError, match="broke"):
        await ask([failing("a"), broken, _Model("c", OK)], ("b/n", "c/n"))


async def test_an_agents_own_chain_goes_before_the_servers():
    a, b, c = failing("a"), _Model("b", OK), _Model("c", OK)
    assert await ask([a, b, c], ("b/n",), options={"fallbacks": ["c/x"]}) == [replace(OK, answered_by="c/x")]
    with pytest.raises(ModelError, match=r"a failed\.$"):
        await ask([a, b, c], ("b/n",), options={"fallbacks": []})
    assert b.asked == []


async def test_a_handle_of_a_chain_that_leads_nowhere_is_passed_over():
    chain = {"fallbacks": ["nowhere/x", "none", "b/n"]}
    assert await ask([failing("a"), _Model("b", OK)], options=chain) == [replace(OK, answered_by="b/n")]


def test_a_chain_is_bounded_and_holds_each_model_once():
    given = ["a/m", "b/1", "b/1", 7, *(f"c/{number}" for number in range(20))]
    chain = chain_of("a/m", {"fallbacks": given}, ())
    assert len(chain) == CHAIN_MAX and chain[:2] == ("b/1", "c/0")
    assert chain_of("a/m", {"fallbacks": "b/1"}, ("c/1",)) == ("c/1",)


async def test_no_more_is_asked_of_a_model_than_it_can_give():
    second = _Model("b", OK, max_tokens=100)
    await ask([failing("a"), second], ("b/n",), max_tokens=5000)
    assert second.asked[0].max_tokens == 100


async def test_leaving_early_lets_go_of_the_provider():
    for providers in ([_Model("a", TextDelta("x"), OK)], [failing("a"), _Model("b", TextDelta("x"), OK)]):
        speaker, name = Models(
            world(), Settings(model_fallbacks=("kelpie/demo",)), [*providers, DemoProvider()]
        ).provider("a/m")
        async with aclosing(speaker.stream(asking(model=name, options={"fallbacks": ["b/n"]}))) as events:
            assert await anext(events) == TextDelta("x")
        assert [provider.closed for provider in providers] == [1] * len(providers)


def test_wrong_chains_stop_the_start():
    with pytest.raises(ConfigurationError, match=r"KELPIE_MODEL_FALLBACKS.*Set ANTHROPIC_API_KEY"):
        Models(world(), Settings(model_fallbacks=("anthropic/claude",)))
    with pytest.raises(ConfigurationError, match="no provider 'anthropics'"):
        Models(world(), Settings(model_fallbacks=("anthropics/claude",)))
    with pytest.raises(ConfigurationError, match="'claude' is not a handle"):
        Models(world(), Settings(model_fallbacks=("claude",)))


def test_who_answers_to_a_handle():
    models = Models(world(), Settings())
    with pytest.raises(NotFound):
        models.provider("nope/x")
    with pytest.raises(InvalidInput):
        models.provider("nope")
