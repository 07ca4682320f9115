"""What goes wrong between us and a provider, for each wire format that is not chat completions, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kelpie.core.conversations.messages import Reasoning, Role, Text
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Event, Provider, Reply, Request, TextDelta
from kelpie.llm.provider.retry import RetryLimits
from kelpie.llm.routing import provider_kinds
from tests.llm.fakes import EAGER, Behaviour, Fake, answer, asking, events, fake, message, said, silence, world
from tests.llm.shapes import framed, load

ANTHROPIC, RESPONSES = load("anthropic"), load("responses")
TEXT = "Hello, wörld.\u2028Two."


@dataclass(frozen=True)
class Wire:
    """A wire format: how its provider is made, and how its server speaks well, breaks off, and complains."""

    kind: str
    model: str
    endpoint: Callable[[str], Endpoint]
    good: dict[str, Any]
    stream: list[dict[str, Any]]  # the text above, from its beginning to its end mark
    silent: int  # how many of these events come before the first word
    complaint: Callable[[str, str], dict[str, Any]]  # of a type, in words
    empty: dict[str, Any]  # what lacks everything
    hint: str

    @property
    def whole(self) -> Behaviour:
        return answer(self.good)

    @property
    def streamed(self) -> Behaviour:
        return events(*framed(*self.stream))


def _anthropic_text() -> list[dict[str, Any]]:
    first, *rest = ANTHROPIC["streams"]["text"]
    last = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "wörld.\u2028Two."}}
    return [first, *(last if "Two" in str(event) else event for event in rest)]


_END = {**RESPONSES["streams"]["text"][-1], "response": RESPONSES["whole"]["text"]}

WIRES = {
    "anthropic": Wire(
        "anthropic",
        "claude-sonnet-4-5",
        lambda url: Endpoint("anthropic", url, "sk-test", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ANTHROPIC["whole"]["text"],
        _anthropic_text(),
        3,
        lambda kind, text: {"type": "error", "error": {"type": kind, "message": text}},
        {"type": "message"},
        "ANTHROPIC_BASE_URL",
    ),
    "responses": Wire(
        "openai",
        "gpt-5-mini",
        lambda url: Endpoint("openai", url, "sk-test", responses=True),
        RESPONSES["whole"]["text"],
        [*RESPONSES["streams"]["text"][:-1], _END],
        3,
        lambda kind, text: {"type": "error", "code": kind, "message": text, "param": None},
        {"object": "response"},
        "OPENAI_BASE_URL",
    ),
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@asynccontextmanager
async def provider(wire: Wire, made: Fake, limits: RetryLimits) -> AsyncIterator[Provider]:
    made_one = provider_kinds.make(wire.kind, world(), wire.endpoint(made.url), limits)
    try:
        yield made_one
    finally:
        await made_one.close()


async def stream(wire: Wire, made: Fake, request: Request, given: list[Event], **limits: float) -> None:
    async with asyncio.timeout(30), provider(wire, made, replace(EAGER, **limits)) as chat:
        async for event in chat.stream(request):
            given.append(event)


async def ask(wire: Wire, made: Fake, deltas: bool = False, **limits: float) -> Reply:
    given: list[Event] = []
    await stream(wire, made, asking(model=wire.model, deltas=deltas), given, **limits)
    assert isinstance(given[-1], Reply)
    return given[-1]


async def failure(wire: Wire, made: Fake, deltas: bool = False, **limits: float) -> tuple[list[Event], ModelError]:
    """What was told before it failed, and how it failed."""
    given: list[Event] = []
    with pytest.raises(ModelError) as caught:
        await stream(wire, made, asking(model=wire.model, deltas=deltas), given, **limits)
    assert "sk-test" not in f"{caught.value} {caught.value.detail} {caught.value.hint}"
    return given, caught.value


@pytest.mark.parametrize(
    ("status", "kind"), [(429, ModelFault.rate_limit), (500, ModelFault.server), (529, ModelFault.server)]
)
@pytest.mark.parametrize("deltas", [False, True])
async def test_what_may_pass_is_asked_again_and_only_so_often(wire: Wire, status: int, kind: ModelFault, deltas: bool):
    busy = answer({"error": {"message": "busy"}}, status)
    async with fake() as made:
        made.will(busy, busy, wire.streamed if deltas else wire.whole)
        assert (await ask(wire, made, deltas)).content == (Text(TEXT),)
        assert len(made.heard) == 3
        assert made.heard[0].raw == made.heard[2].raw
        made.will(busy)
        _, error = await failure(wire, made, deltas)
        assert len(made.heard) == 6
    assert (error.kind, error.detail) == (kind, "busy")


@pytest.mark.parametrize("shape", ANTHROPIC["errors"], ids=lambda shape: f"{shape['status']} {shape['kind']}")
async def test_each_of_anthropics_errors(shape: dict[str, Any]):
    async with fake() as made:
        made.will(answer(shape["body"], shape["status"]))
        _, error = await failure(WIRES["anthropic"], made, attempts=1)
    assert (error.kind.value, error.detail) == (shape["kind"], shape["body"]["error"]["message"])
    assert error.hint


async def test_retry_after_is_told_to_the_caller(wire: Wire):
    async with fake() as made:
        made.will(answer({"error": {"message": "slow down"}}, 429, headers={"Retry-After": "7"}))
        assert (await failure(wire, made, attempts=1))[1].retry_after_s == 7
        made.will(answer({"error": {"message": "slow down"}}, 429))
        assert (await failure(wire, made, attempts=1))[1].retry_after_s is None


async def test_a_malformed_reply_is_asked_for_again(wire: Wire):
    for broken, why in (
        (answer(b'{"content": [{"ty'), "not JSON"),
        (answer(wire.empty), "it has no"),
        (answer({**wire.good, "content": ["?"], "output": ["?"]}), "not an object"),
        (answer(b"<html>Welcome</html>", 200, "text/html"), "text/html"),
    ):
        async with fake() as made:
            made.will(broken, wire.whole)
            assert (await ask(wire, made)).content == (Text(TEXT),)
            made.will(broken)
            _, error = await failure(wire, made)
            assert len(made.heard) == 5
        assert error.kind is ModelFault.malformed
        assert why in error.message
        assert error.hint and wire.hint in error.hint


async def test_a_malformed_stream_is_asked_for_again(wire: Wire):
    for broken in (
        events("data: {broken\n\n"),
        events("data: [1\n\n"),
        events(*framed(wire.stream[-1] | {"response": {}})),
        events(*framed(*wire.stream[3:])),
        answer(b"<html>Welcome</html>", 200, "text/html"),
    ):
        async with fake() as made:
            made.will(broken, wire.streamed)
            assert (await ask(wire, made, deltas=True)).content == (Text(TEXT),)
            made.will(broken)
            _, error = await failure(wire, made, deltas=True)
            assert error.kind is ModelFault.malformed


@pytest.mark.parametrize("end", ["clean", "cut"])
async def test_a_cut_stream_is_asked_for_again_only_before_the_first_word(wire: Wire, end: str):
    async with fake() as made:
        made.will(events(*framed(*wire.stream[: wire.silent]), end=end), wire.streamed)
        assert (await ask(wire, made, deltas=True)).content == (Text(TEXT),)
        assert len(made.heard) == 2
        made.will(events(*framed(*wire.stream[: wire.silent + 1]), end=end), wire.streamed)
        given, error = await failure(wire, made, deltas=True)
        assert len(made.heard) == 3
    assert given == [TextDelta("Hello, ")]
    assert error.kind is ModelFault.connection


@pytest.mark.parametrize("end", ["clean", "cut", "open"])
async def test_what_comes_after_the_end_takes_nothing_away(wire: Wire, end: str):
    async with fake() as made:
        made.will(events(*framed(*wire.stream), end=end))
        assert (await ask(wire, made, deltas=True)).content == (Text(TEXT),)


@pytest.mark.parametrize(
    ("kind", "fault", "times"),
    [
        ("overloaded_error", ModelFault.server, 3),
        ("server_error", ModelFault.server, 3),
        ("rate_limit_error", ModelFault.rate_limit, 3),
        ("invalid_request_error", ModelFault.bad_request, 1),
    ],
)
async def test_an_error_inside_a_stream(wire: Wire, kind: str, fault: ModelFault, times: int):
    boom = wire.complaint(kind, "boom")
    async with fake() as made:
        made.will(events(*framed(wire.stream[0], boom)))
        _, told = await failure(wire, made, deltas=True)
        assert len(made.heard) == times
        assert (told.kind, told.detail) == (fault, "boom")
        made.will(events(*framed(*wire.stream[: wire.silent + 1], boom)), wire.streamed)
        given, told = await failure(wire, made, deltas=True)
        assert len(made.heard) == times + 1
    assert given == [TextDelta("Hello, ")]
    assert (told.kind, told.detail) == (fault, "boom")


@pytest.mark.parametrize("deltas", [False, True])
async def test_a_response_that_failed(deltas: bool):
    failed = RESPONSES["failed"]
    behaviour = events(*framed({"type": "response.failed", "response": failed})) if deltas else answer(failed)
    async with fake() as made:
        made.will(behaviour)
        _, error = await failure(WIRES["responses"], made, deltas)
        assert len(made.heard) == 3
    assert (error.kind, error.detail) == (ModelFault.server, "boom")


@pytest.mark.parametrize(("deltas", "limit"), [(False, "total_s"), (True, "first_byte_s")])
async def test_a_slow_first_byte(wire: Wire, deltas: bool, limit: str):
    async with fake() as made:
        made.will(silence)
        _, error = await failure(wire, made, deltas, **{"attempts": 2, limit: 0.2})
        assert len(made.heard) == (2 if deltas else 1)
    assert error.kind is ModelFault.timeout


async def test_a_stream_that_falls_silent(wire: Wire):
    async with fake() as made:
        made.will(events(*framed(*wire.stream[: wire.silent + 1]), end="open"))
        given, error = await failure(wire, made, deltas=True, idle_s=0.5)
    assert given == [TextDelta("Hello, ")]
    assert error.kind is ModelFault.timeout


async def test_the_connection_is_used_again(wire: Wire):
    async with fake() as made, provider(wire, made, EAGER) as chat:
        made.will(wire.streamed)
        for _ in range(3):
            [event async for event in chat.stream(asking(model=wire.model, deltas=True))]
        assert made.connections == 1


REFUSED_THOUGHTS = {
    "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to another one.",
    "responses": "The encrypted content could not be verified.",
}


@pytest.mark.parametrize("name", REFUSED_THOUGHTS)
async def test_thoughts_that_are_refused_do_not_brick_the_agent(name: str):
    wire, refusal = (
        WIRES[name],
        answer({"error": {"message": REFUSED_THOUGHTS[name], "type": "invalid_request_error"}}, 400),
    )
    history = [
        said("hi"),
        message(Role.assistant, Reasoning("hmm", signature="Esig"), "hello", number=2),
        said("so", 3),
    ]
    request = asking(model=wire.model, messages=history)
    async with fake() as made:
        made.will(refusal, wire.whole)
        await stream(wire, made, request, [])
        await stream(wire, made, request, [])
        assert [b"Esig" in heard.raw for heard in made.heard] == [True, False, False]
        assert all(b"hello" in heard.raw for heard in made.heard)
        made.will(refusal)
        with pytest.raises(ModelError):
            await stream(wire, made, request, [])
        assert len(made.heard) <= 5


async def test_an_account_without_summaries_is_asked_without_them():
    words = "Your organization must be verified to generate reasoning summaries."
    wire = WIRES["responses"]
    async with fake() as made, provider(wire, made, EAGER) as chat:
        made.will(answer({"error": {"message": words, "type": "invalid_request_error"}}, 400), wire.whole)
        for _ in range(2):
            [event async for event in chat.stream(asking(model=wire.model))]
        assert ["summary" in heard.body["reasoning"] for heard in made.heard] == [True, False, False]


async def test_a_refusal_about_something_else_is_told_at_once(wire: Wire):
    async with fake() as made:
        made.will(answer({"error": {"message": "max_tokens: must be positive"}}, 400))
        _, error = await failure(wire, made)
        assert len(made.heard) == 1
    assert (error.kind, error.detail) == (ModelFault.bad_request, "max_tokens: must be positive")
