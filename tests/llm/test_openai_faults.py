"""What goes wrong between us and a provider, over real HTTP: each failure is the right error, told with a remedy."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.conversations.messages import Text
from kelpie.core.errors import ConfigurationError, ModelError, ModelFault
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import Event, Reply, TextDelta
from tests.llm.fakes import (
    DONE,
    EAGER,
    Fake,
    answer,
    asking,
    chunk,
    completion,
    events,
    fake,
    provider,
    silence,
    world,
)

GOOD = answer(completion({"content": "Hello."}))
GOOD_STREAM = events(chunk({"content": "Hello."}), chunk({}, "stop"), DONE)


def complaint(text: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": text, **fields}}


async def ask(made: Fake, deltas: bool = False, **limits: float) -> Reply:
    async with asyncio.timeout(30), provider(made, replace(EAGER, **limits)) as chat:
        given = [event async for event in chat.stream(asking(deltas=deltas))]
    assert isinstance(given[-1], Reply)
    return given[-1]


async def failure(made: Fake, deltas: bool = False, **limits: float) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(made, deltas, **limits)
    assert "sk-test" not in f"{caught.value} {caught.value.detail} {caught.value.hint}"
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, ModelFault.bad_request, "settings"),
        (401, ModelFault.authentication, "OPENAI_API_KEY"),
        (402, ModelFault.insufficient_credits, "credit"),
        (403, ModelFault.authentication, "OPENAI_API_KEY"),
        (404, ModelFault.bad_request, "/v1/models/"),
        (422, ModelFault.bad_request, "settings"),
        (307, ModelFault.bad_request, "redirects"),
    ],
)
async def test_what_will_not_pass_is_told_at_once(status: int, kind: ModelFault, hint: str):
    async with fake() as made:
        made.will(answer(complaint("The provider's own words."), status))
        error = await failure(made)
        assert len(made.heard) == 1
    assert (error.kind, error.detail) == (kind, "The provider's own words.")
    assert error.hint and hint in error.hint
    assert str(status) in error.message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, ModelFault.timeout),
        (429, ModelFault.rate_limit),
        (500, ModelFault.server),
        (503, ModelFault.server),
        (504, ModelFault.timeout),
        (529, ModelFault.server),
    ],
)
@pytest.mark.parametrize("deltas", [False, True])
async def test_what_may_pass_is_asked_again_and_only_so_often(status: int, kind: ModelFault, deltas: bool):
    async with fake() as made:
        made.will(answer(complaint("busy"), status), answer(complaint("busy"), status), GOOD)
        assert (await ask(made, deltas)).content == (Text("Hello."),)
        assert len(made.heard) == 3
        assert made.heard[0].raw == made.heard[2].raw
        made.will(answer(complaint("busy"), status))
        error = await failure(made, deltas)
        assert len(made.heard) == 6
    assert (error.kind, error.detail) == (kind, "busy")


async def test_retry_after_is_told_to_the_caller():
    async with fake() as made:
        made.will(answer(complaint("slow down"), 429, headers={"Retry-After": "7"}))
        assert (await failure(made, attempts=1)).retry_after_s == 7
        made.will(answer(complaint("slow down"), 429))
        assert (await failure(made, attempts=1)).retry_after_s is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, complaint("This model's maximum context length is 8192 tokens.", code="context_length_exceeded")),
        (400, complaint("This model's maximum context length is 4096 tokens. However, you requested 5000.")),
        (400, complaint("too large", type="exceed_context_size_error")),
        (413, complaint("prompt is too long: 300000 tokens")),
        (200, complaint("exceeds the context window of this model", code=400)),
    ],
)
async def test_a_conversation_that_is_too_long(status: int, body: Any):
    async with fake() as made:
        made.will(answer(body, status))
        error = await failure(made)
        assert len(made.heard) == 1
    assert error.kind is ModelFault.context_overflow


async def test_an_empty_account_is_not_a_rate_limit():
    async with fake() as made:
        made.will(answer(complaint("You exceeded your current quota.", code="insufficient_quota"), 429))
        error = await failure(made)
        assert len(made.heard) == 1
    assert error.kind is ModelFault.insufficient_credits


async def test_an_error_that_is_not_json_is_told_as_it_is():
    async with fake() as made:
        made.will(answer(b"<html>Bad gateway</html>", 502, "text/html"))
        error = await failure(made)
    assert (error.kind, error.detail) == (ModelFault.server, "<html>Bad gateway</html>")


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (answer(b'{"choices": [{"mess'), "not JSON"),
        (answer(b"[1, 2"), "not JSON"),
        (answer(b'"text"'), "not a JSON object"),
        (answer({"object": "chat.completion"}), "no choices"),
        (answer({"choices": []}), "no choices"),
        (answer({"choices": ["?"]}), "not an object"),
        (answer(completion({"content": ""})), "empty"),
        (answer(completion({"content": None, "tool_calls": [{"id": "a", "function": {}}]})), "no name"),
        (answer(completion({"content": None, "tool_calls": ["a"]})), "not a function call"),
        (answer(b"<html>Welcome</html>", 200, "text/html"), "text/html"),
    ],
)
async def test_a_malformed_reply_is_asked_for_again(behaviour: Any, why: str):
    async with fake() as made:
        made.will(behaviour, GOOD)
        assert (await ask(made)).content == (Text("Hello."),)
        made.will(behaviour)
        error = await failure(made)
        assert len(made.heard) == 5
    assert error.kind is ModelFault.malformed
    assert why in error.message
    assert error.hint and "OPENAI_BASE_URL" in error.hint


@pytest.mark.parametrize(
    "behaviour",
    [
        events("data: {broken\n\n", DONE),
        events("data: [1]\n\n", DONE),
        events(chunk({}, "stop"), DONE),
        events(DONE),
        answer(b"<html>Welcome</html>", 200, "text/html"),
    ],
)
async def test_a_malformed_stream_is_asked_for_again(behaviour: Any):
    async with fake() as made:
        made.will(behaviour, GOOD_STREAM)
        assert (await ask(made, deltas=True)).content == (Text("Hello."),)
        made.will(behaviour)
        assert (await failure(made, deltas=True)).kind is ModelFault.malformed


@pytest.mark.parametrize("end", ["clean", "cut"])
async def test_a_stream_cut_before_the_first_word_is_asked_for_again(end: str):
    async with fake() as made:
        made.will(events(chunk({"role": "assistant", "content": ""}), end=end), GOOD_STREAM)
        assert (await ask(made, deltas=True)).content == (Text("Hello."),)
        assert len(made.heard) == 2


async def partly(made: Fake, **limits: float) -> tuple[list[Event], ModelError]:
    """What a stream gave before it failed, and how."""
    given: list[Event] = []
    async with asyncio.timeout(30), provider(made, replace(EAGER, **limits)) as chat:
        try:
            async for event in chat.stream(asking(deltas=True)):
                given.append(event)
        except ModelError as error:
            return given, error
    raise AssertionError("the stream did not fail")


@pytest.mark.parametrize("end", ["clean", "cut"])
async def test_a_stream_cut_after_a_word_is_never_asked_for_again(end: str):
    async with fake() as made:
        made.will(events(chunk({"content": "Hel"}), end=end), GOOD_STREAM)
        given, error = await partly(made)
        assert len(made.heard) == 1
    assert given == [TextDelta("Hel")]
    assert error.kind is ModelFault.connection
    if end == "clean":
        assert "stream ended early" in error.message


@pytest.mark.parametrize("end", ["clean", "cut"])
async def test_a_stream_that_lacks_only_its_end_mark_is_whole(end: str):
    async with fake() as made:
        made.will(events(chunk({"content": "Hello."}), chunk({}, "stop"), end=end))
        assert (await ask(made, deltas=True)).content == (Text("Hello."),)


@pytest.mark.parametrize(
    ("error", "kind", "times"),
    [
        ({"message": "boom", "type": "server_error", "code": None}, ModelFault.server, 3),
        ({"message": "boom", "code": "rate_limit_exceeded"}, ModelFault.rate_limit, 3),
        ({"message": "boom", "code": 429}, ModelFault.rate_limit, 3),
        ({"message": "boom", "type": "invalid_request_error"}, ModelFault.bad_request, 1),
        ({"message": "boom", "code": "invalid_api_key"}, ModelFault.authentication, 1),
        ("boom", ModelFault.server, 3),
    ],
)
async def test_an_error_inside_a_stream(error: Any, kind: ModelFault, times: int):
    async with fake() as made:
        made.will(events({"error": error}))
        told = await failure(made, deltas=True)
        assert len(made.heard) == times
        assert (told.kind, told.detail) == (kind, "boom")
        made.will(events(chunk({"content": "Hel"}), {"error": error}), GOOD_STREAM)
        given, told = await partly(made)
        assert len(made.heard) == times + 1
    assert given == [TextDelta("Hel")]
    assert (told.kind, told.detail) == (kind, "boom")


async def test_an_error_event_by_its_name():
    async with fake() as made:
        made.will(events('event: error\ndata: {"message": "boom", "type": "overloaded_error"}\n\n'))
        error = await failure(made, deltas=True)
    assert (error.kind, error.detail) == (ModelFault.server, "boom")


@pytest.mark.parametrize(
    ("deltas", "limit", "named"),
    [(False, "total_s", "KELPIE_MODEL_TIMEOUT_SECONDS"), (True, "first_byte_s", "KELPIE_MODEL_FIRST_BYTE_SECONDS")],
)
async def test_a_slow_first_byte(deltas: bool, limit: str, named: str):
    async with fake() as made:
        made.will(silence)
        error = await failure(made, deltas, **{"attempts": 2, limit: 0.2})
        assert len(made.heard) == (2 if deltas else 1)
    assert error.kind is ModelFault.timeout
    assert error.hint and named in error.hint


async def test_a_stream_that_falls_silent():
    async with fake() as made:
        made.will(events(chunk({"content": "Hel"}), end="open"))
        given, error = await partly(made, idle_s=0.5)
        assert len(made.heard) == 1
    assert given == [TextDelta("Hel")]
    assert error.kind is ModelFault.timeout


async def test_silence_after_the_end_mark_takes_nothing_away():
    async with fake() as made:
        made.will(events(chunk({"content": "Hello."}), chunk({}, "stop"), DONE, end="open"))
        assert (await ask(made, deltas=True)).content == (Text("Hello."),)


async def test_connection_refused():
    async with fake() as made:
        url = made.url
    chat = OpenAIChat(world(), Endpoint("openai", url, "sk-test"), EAGER)
    with pytest.raises(ModelError) as caught:
        [event async for event in chat.stream(asking())]
    await chat.close()
    error = caught.value
    assert error.kind is ModelFault.connection
    assert f"{url}/chat/completions" in error.message
    assert error.hint and "OPENAI_BASE_URL" in error.hint


async def test_the_connection_is_used_again_and_let_go_when_the_caller_stops():
    async with fake() as made, provider(made) as chat:
        made.will(GOOD_STREAM)
        for _ in range(3):
            [event async for event in chat.stream(asking(deltas=True))]
        assert made.connections == 1
        made.will(events(chunk({"content": "Hel"}), end="open"))
        stream = chat.stream(asking(deltas=True))
        assert await anext(stream) == TextDelta("Hel")
        await stream.aclose()
        made.will(GOOD)
        [event async for event in chat.stream(asking())]
        assert made.connections == 2


async def test_headers():
    async with fake() as made:
        made.will(GOOD)
        await ask(made)
        assert made.heard[0].path == "/v1/chat/completions"
        assert made.heard[0].headers["authorization"] == "Bearer sk-test"
        async with provider(made, key=None) as chat:
            [event async for event in chat.stream(asking())]
        assert "authorization" not in made.heard[1].headers


@pytest.mark.parametrize(
    ("url", "key", "setting"),
    [
        ("localhost:8000/v1", None, "OPENAI_BASE_URL"),
        ("http://localhost:port/v1", None, "OPENAI_BASE_URL"),
        ("http:///v1", None, "OPENAI_BASE_URL"),
        ("http://localhost/v1", "sk-“quoted”", "OPENAI_API_KEY"),
        ("http://localhost/v1", "sk-a b", "OPENAI_API_KEY"),
    ],
)
def test_wrong_settings_are_named(url: str, key: str | None, setting: str):
    with pytest.raises(ConfigurationError) as caught:
        Endpoint("openai", url, key)
    assert caught.value.setting == setting
    assert "sk-" not in str(caught.value)


def test_a_password_in_the_url_is_not_shown():
    endpoint = Endpoint("openai", "http://me:hush@localhost:8000/v1/", "sk-test")
    assert endpoint.shown == "http://localhost:8000/v1"
    assert endpoint.url("models") == "http://me:hush@localhost:8000/v1/models"
    assert "sk-test" not in repr(endpoint)
