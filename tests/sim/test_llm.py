"""The scripted model speaks OpenAI's chat completions, decides by the request alone, and fails on demand."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import httpx_sse
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from kelpie.sim.faults import Aim, Fault, Faults
from kelpie.sim.loop.loop import SimLoop
from kelpie.sim.loop.node import Node
from kelpie.sim.loop.simulation import simulate
from kelpie.sim.network.network import Network
from kelpie.sim.network.outgoing_http import Internet, SimHttp
from kelpie.sim.ports.model_provider import ScriptedLlm
from kelpie.sim.ports.scripted_model import decide, token_of

T = TypeVar("T")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("roll", "core_memory_append")]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def play(body: Callable[[httpx.AsyncClient, ScriptedLlm], Awaitable[T]], *aims: Aim, seed: int = 0) -> T:
    async def main(loop: SimLoop) -> T:
        faults = Faults(loop, aims)
        internet, llm = Internet(Network(loop, faults)), ScriptedLlm(loop, faults)
        internet.host("llm.sim", llm)
        transport = SimHttp(internet, Node("n")).transport()
        client = httpx.AsyncClient(transport=transport, base_url="http://llm.sim/v1", timeout=60)
        result = await body(client, llm)
        for aim in aims:
            assert faults.fired(aim.fault, aim.place), f"{aim.fault} never fired at {aim.place}"
        return result

    return simulate(main, SimLoop(seed)).get()


async def complete(client: httpx.AsyncClient, *messages: dict[str, Any], **options: Any) -> httpx.Response:
    return await client.post("/chat/completions", json={"model": "scripted", "messages": messages, **options})


async def stream(client: httpx.AsyncClient, *messages: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    body = {"model": "scripted", "messages": messages, "stream": True, **options}
    async with httpx_sse.aconnect_sse(client, "POST", "/chat/completions", json=body) as source:
        return [json.loads(event.data) async for event in source.aiter_sse() if event.data != "[DONE]"]


def test_an_answer_is_a_completion_that_the_official_types_accept() -> None:
    async def body(client: httpx.AsyncClient, llm: ScriptedLlm) -> None:
        whole = ChatCompletion.model_validate((await complete(client, user("hello tok-7-x"))).json())
        assert whole.choices[0].message.content == "echo tok-7-x"
        assert whole.choices[0].finish_reason == "stop" and whole.usage and whole.usage.total_tokens > 0
        called = ChatCompletion.model_validate((await complete(client, user('call roll {"n": 2}'), tools=TOOLS)).json())
        calls = called.choices[0].message.tool_calls
        assert calls and calls[0].type == "function"
        assert (calls[0].function.name, json.loads(calls[0].function.arguments)) == ("roll", {"n": 2})
        assert called.choices[0].finish_reason == "tool_calls"
        assert [seen.body["messages"][0]["content"] for seen in llm.seen] == ["hello tok-7-x", 'call roll {"n": 2}']
        assert (await client.get("/models")).json()["data"][0]["id"] == "scripted"
        assert (await client.get("/nothing")).status_code == 404

    play(body)


def test_a_streamed_answer_says_the_same_as_a_whole_one() -> None:
    async def body(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        for asked in ("hello tok-7-x", 'call roll {"sides": 6, "times": 3} & call roll {}'):
            whole = (await complete(client, user(asked), tools=TOOLS)).json()["choices"][0]
            raw = await stream(client, user(asked), tools=TOOLS, stream_options={"include_usage": True})
            chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in raw]
            assert chunks[-1].usage and not chunks[-1].choices
            deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
            assert "".join(delta.content or "" for delta in deltas) == (whole["message"]["content"] or "")
            arguments: dict[int, str] = {}
            for call in (call for delta in deltas for call in delta.tool_calls or ()):
                assert call.function
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
            expected = [call["function"]["arguments"] for call in whole["message"].get("tool_calls", ())]
            assert list(arguments.values()) == expected
            assert chunks[-2].choices[0].finish_reason == whole["finish_reason"]

    play(body)


def test_the_script_goes_step_by_step_and_ends_with_the_token() -> None:
    chat: list[dict[str, Any]] = [user('call a {"x": 1}\ncall b {} & call c\ntok-3-x')]
    names: list[list[str]] = []
    ids: list[str] = []
    while (decision := decide(chat, ["a", "b", "c"])).calls:
        names.append([call.name for call in decision.calls])
        ids += [call.id for call in decision.calls]
        made = [{"id": call.id, "function": {"name": call.name}} for call in decision.calls]
        chat.append({"role": "assistant", "tool_calls": made})
        chat += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in decision.calls]
    assert names == [["a"], ["b", "c"]]
    assert len(set(ids)) == 3
    assert decision.text == "echo tok-3-x"


def test_remember_uses_the_tool_that_is_offered() -> None:
    asked = [user("remember I like tea")]
    append, insert = (decide(asked, [name]).calls[0] for name in ("core_memory_append", "memory_insert"))
    assert json.loads(append.arguments) == {"label": "human", "content": "I like tea"}
    assert json.loads(insert.arguments) == {"label": "human", "new_string": "I like tea"}
    assert decide(asked, []).text == f"echo {token_of('remember I like tea')}"


def test_older_agent_types_are_understood() -> None:
    wrapped = json.dumps({"type": "user_message", "message": "hi tok-9-x", "time": "now"})
    call = decide([user(wrapped)], ["send_message"]).calls[0]
    assert (call.name, json.loads(call.arguments)) == ("send_message", {"message": "echo tok-9-x"})
    forced = decide([user("hi")], ["roll"], {"type": "function", "function": {"name": "roll"}})
    assert forced.calls[0].name == "roll"


def test_a_retry_of_one_request_gets_the_same_reply() -> None:
    asked = [user("call a {}")]
    assert decide(asked, ["a"]) == decide(asked, ["a"])
    assert decide(asked, ["a"]).calls[0].id != decide([user("x"), *asked], ["a"]).calls[0].id


@pytest.mark.parametrize(("place", "told"), [("llm.with_retry_after", "2"), ("llm.without_retry_after", None)])
def test_rate_limits(place: str, told: str | None) -> None:
    async def body(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        refused = await complete(client, user("hi"))
        assert refused.status_code == 429 and refused.headers.get("retry-after") == told
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await complete(client, user("hi"))).status_code == 200

    play(body, Aim(Fault.llm_rate_limit, place, nth=1))


@pytest.mark.parametrize("place", ["llm.reply", "llm.stream"])
def test_time_outs(place: str) -> None:
    async def body(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await stream(client, user("hi"))
        assert asyncio.get_running_loop().time() >= 60
        assert await stream(client, user("hi"))

    play(body, Aim(Fault.llm_timeout, place, nth=1))


def test_malformed_answers() -> None:
    async def no_json(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        with pytest.raises(json.JSONDecodeError):
            (await complete(client, user("hi"))).json()

    async def failed(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        assert (await complete(client, user("hi"))).status_code == 500

    async def a_page(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        assert (await complete(client, user("hi"))).headers["content-type"] == "text/html"

    async def no_choices(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        assert (await complete(client, user("hi"))).json()["choices"] == []

    async def bad_arguments(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        answer = (await complete(client, user("call roll {}"), tools=TOOLS)).json()
        with pytest.raises(json.JSONDecodeError):
            json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])

    async def cut(client: httpx.AsyncClient, _llm: ScriptedLlm) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await stream(client, user("hi tok-5-x"))

    for place, body in (
        ("llm.body", no_json),
        ("llm.status", failed),
        ("llm.content_type", a_page),
        ("llm.choices", no_choices),
        ("llm.arguments", bad_arguments),
        ("llm.cut", cut),
    ):
        play(body, Aim(Fault.llm_malformed, place, nth=1))
