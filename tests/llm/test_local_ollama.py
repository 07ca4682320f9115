"""Ollama in its own words: what is sent, what is read, what goes wrong, and models that come and go."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.conversations.messages import Image, Reasoning, Role, Text, Usage
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.local.ollama_request import WINDOW_MIN, encode_request
from kelpie.llm.local.probing import Progress
from kelpie.llm.provider.interface import ReasoningDelta, Reply, Request, TextDelta, ToolCallDelta
from tests.llm.fakes import EAGER, answer, asking, called, message, returned, said, silence, tool
from tests.llm.local_fakes import LocalFake, local_fake, local_server, ndjson, ollama, shown

DONE = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 900,
    "load_duration": 300,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 100,
    "eval_count": 7,
    "eval_duration": 500,
}
USAGE = Usage(26, 7, 33, load_ns=300, inference_ns=600)


def line(done: bool = False, **fields: Any) -> dict[str, Any]:
    return {"model": "qwen3:8b", "message": {"role": "assistant", "content": "", **fields}, **(DONE if done else {})}


CALL = {"function": {"name": "roll", "arguments": {"sides": 6}}}


async def ask(fake: LocalFake, request: Request | None = None, **options: Any) -> list[Any]:
    ollama(fake, qwen3__8b=shown(), fixed=shown(parameters="num_ctx 16384"))
    async with local_server(fake.url, **options) as server:
        wanted = request or asking(model="qwen3:8b", deltas=True)
        return [event async for event in server.stream(wanted)]


async def test_a_stream_with_thoughts_words_calls_and_times():
    async with local_fake() as fake:
        fake.at(
            "POST /api/chat",
            ndjson(line(thinking="Hm"), line(content="Hel"), line(content="lo"), line(tool_calls=[CALL]), line(True)),
        )
        events = await ask(fake)
    reply = events[-1]
    call_id = reply.tool_calls[0].id
    assert events[:-1] == [
        ReasoningDelta("Hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallDelta(0, call_id, "roll", '{"sides":6}'),
    ]
    assert reply.content == (Reasoning("Hm"), Text("Hello"))
    assert (reply.finish_reason, reply.usage) == ("tool_calls", USAGE)


async def test_a_reply_in_one_piece():
    async with local_fake() as fake:
        fake.at("POST /api/chat", line(True, content="Hello"))
        events = await ask(fake, asking(model="qwen3:8b"))
    assert events == [Reply((Text("Hello"),), (), "stop", USAGE)]
    assert fake.asked("POST /api/chat")[0].body["stream"] is False


def body(**fields: Any) -> dict[str, Any]:
    return json.loads(encode_request(asking(**{"model": "m", **fields}), None))


def test_what_is_sent():
    picture = base64.b64encode(b"png").decode()
    sent = body(
        messages=[
            message(Role.user, "look", Image({"data": picture, "media_type": "image/png"})),
            message(Role.user, "there", Image({"url": "http://x/y.png"})),
            called("roll", '{"sides": 6}'),
            returned("roll", "4"),
            called("roll", "not json"),
            message(Role.assistant, "It is 4."),
        ],
        tools=[tool("roll", sides="integer")],
        temperature=0.5,
        max_tokens=100,
        options={"num_gpu": 20, "num_thread": 4, "num_ctx": 4096, "keep_alive": "10m", "think": False, "top_p": 0.9},
    )
    assert sent["options"] == {
        "num_gpu": 20,
        "num_thread": 4,
        "num_ctx": 4096,
        "top_p": 0.9,
        "temperature": 0.5,
        "num_predict": 100,
    }
    assert (sent["keep_alive"], sent["think"], sent["stream"]) == ("10m", False, False)
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look", "images": [picture]},
        {"role": "user", "content": "there\n[An image was here, but Ollama does not accept images by URL.]"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "roll", "arguments": {"sides": 6}}}],
        },
        {"role": "tool", "tool_name": "roll", "content": "4"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "roll", "arguments": {"arguments": "not json"}}}],
        },
        {"role": "assistant", "content": "It is 4."},
    ]
    assert sent["tools"][0]["function"]["name"] == "roll"


def test_a_choice_of_tools_is_made_by_what_is_told():
    tools = [tool("a"), tool("b")]

    def names(choice: str) -> list[str]:
        return [each["function"]["name"] for each in body(tools=tools, tool_choice=choice).get("tools", [])]

    assert [names(choice) for choice in ("auto", "required", "none", "b")] == [["a", "b"], ["a", "b"], [], ["b"]]


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "text"}, None),
    ],
)
def test_a_form_of_the_reply(wanted: dict[str, Any], sent: Any):
    assert body(options={"response_format": wanted}).get("format") == sent


async def test_the_window_holds_the_prompt_grows_and_never_shrinks():
    async with local_fake() as fake:
        ollama(fake, qwen3__8b=shown(window=100_000), fixed=shown(parameters="num_ctx 16384"))
        fake.at("POST /api/chat", line(True, content="ok"))
        async with local_server(fake.url) as server:
            short, long = asking("hi", model="qwen3:8b"), asking("x" * 60_000, model="qwen3:8b")
            longest = asking("x" * 900_000, model="qwen3:8b")
            own = replace(short, options={"num_ctx": 2048})
            for request in (short, long, short, longest, own, replace(short, model="fixed")):
                assert [event async for event in server.stream(request)]
        sizes = [heard.body["options"].get("num_ctx") for heard in fake.asked("POST /api/chat")]
    assert sizes == [WINDOW_MIN, 32_768, 32_768, 100_000, 2048, None]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (answer({"error": "overloaded"}, 429), ModelFault.rate_limit),
        (answer({"error": "overloaded"}, 429, headers={"retry-after": "0"}), ModelFault.rate_limit),
        (answer({"error": "llama runner process has terminated"}, 500), ModelFault.server),
        (ndjson(line(content="Hel"), '{"message": {"cont', end="clean"), ModelFault.malformed),
        (ndjson(line(content="Hel"), end="cut"), ModelFault.connection),
        (ndjson(line(content="Hel")), ModelFault.connection),
        (ndjson(line(content="Hel"), {"error": "out of memory"}), ModelFault.server),
        (ndjson({"what": 1}), ModelFault.malformed),
        (ndjson(line(tool_calls=[{"name": "x"}]), line(True)), ModelFault.malformed),
        (ndjson(line(True)), ModelFault.malformed),
        (answer(b"<html>", 200, "text/html"), ModelFault.malformed),
        (answer({"error": "m does not support tools"}, 400), ModelFault.bad_request),
    ],
)
async def test_failures_are_told_by_kind(behaviour: Any, kind: ModelFault):
    async with local_fake() as fake:
        fake.at("POST /api/chat", behaviour)
        with pytest.raises(ModelError) as caught:
            await ask(fake)
    assert caught.value.kind is kind


async def test_silence_is_given_up_and_a_failure_that_passes_is_not_seen():
    async with local_fake() as fake:
        fake.at("POST /api/chat", silence)
        with pytest.raises(ModelError) as caught:
            await ask(fake, limits=replace(EAGER, attempts=1, first_byte_s=0.05))
        assert caught.value.kind is ModelFault.timeout
        fake.at("POST /api/chat", answer({"error": "busy"}, 503), ndjson(line(content="ok"), line(True)))
        events = await ask(fake)
    assert events[-1].content == (Text("ok"),)


async def test_a_stream_that_breaks_after_its_end_takes_nothing_away():
    async with local_fake() as fake:
        fake.at("POST /api/chat", ndjson(line(content="ok"), line(True), end="cut"))
        assert (await ask(fake))[-1].content == (Text("ok"),)


MISSING = answer({"error": "model 'new:1b' not found"}, 404)


async def test_a_missing_model_names_the_command():
    async with local_fake() as fake:
        fake.at("POST /api/chat", MISSING)
        with pytest.raises(ModelError) as caught:
            await ask(fake, asking(model="new:1b"))
        assert not fake.asked("POST /api/pull")
    assert caught.value.kind is ModelFault.bad_request
    assert "`kelpie models pull ollama/new:1b`" in (caught.value.hint or "")


PULLED = ndjson(
    {"status": "pulling manifest"},
    {"status": "pulling 8eeb52dfb3bb", "digest": "sha256:8e", "total": 100, "completed": 40},
    {"status": "success"},
)


async def test_a_missing_model_is_pulled_when_it_may_be():
    async with local_fake() as fake:
        fake.at("POST /api/chat", MISSING, ndjson(line(content="new"), line(True)))
        fake.at("POST /api/pull", PULLED)
        events = await ask(fake, asking(model="new:1b", deltas=True), pull_missing=True)
        assert fake.asked("POST /api/pull")[0].body == {"model": "new:1b", "stream": True}
    assert events[-1].content == (Text("new"),)


async def test_pulling_tells_how_far_it_is_and_goes_on_after_a_break():
    async with local_fake() as fake:
        ollama(fake)
        broken = ndjson({"status": "pulling 8e", "total": 100, "completed": 10}, end="cut")
        fake.at("POST /api/pull", broken, PULLED)
        async with local_server(fake.url) as server:
            steps = [step async for step in server.pull("new:1b")]
    assert steps == [
        Progress("pulling 8e", 10, 100),
        Progress("pulling manifest"),
        Progress("pulling 8eeb52dfb3bb", 40, 100),
        Progress("success"),
    ]


@pytest.mark.parametrize(
    "behaviour",
    [
        ndjson({"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}),
        answer({"error": "pull model manifest: file does not exist"}, 500),
    ],
)
async def test_a_model_that_is_nowhere_cannot_be_pulled(behaviour: Any):
    async with local_fake() as fake:
        ollama(fake).at("POST /api/pull", behaviour)
        async with local_server(fake.url) as server:
            with pytest.raises(ModelError) as caught:
                await server.fetch("nowhere")
        assert len(fake.asked("POST /api/pull")) == 1
    assert "file does not exist" in (caught.value.detail or "")


async def test_removing():
    async with local_fake() as fake:
        ollama(fake, old=shown()).at("DELETE /api/delete", answer(b""), answer({"error": "model 'x' not found"}, 404))
        async with local_server(fake.url) as server:
            assert [model.name for model in await server.models()] == ["old"]
            ollama(fake)
            await server.remove("old")
            assert await server.models() == ()
            with pytest.raises(ModelError) as caught:
                await server.remove("x")
        assert fake.asked("DELETE /api/delete")[0].body == {"model": "old"}
    assert "not found" in (caught.value.detail or "")


async def test_history_is_encoded_once():
    row = said("hi")
    encode_request(asking(messages=[row]), None)
    first = row.wire["ollama"]
    encode_request(asking(messages=[row]), None)
    assert row.wire["ollama"] is first
