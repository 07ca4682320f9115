"""Forced tool calls on llama.cpp: one tool by name, and models whose chat template has no tools."""

from contextlib import aclosing
from typing import Any

import pytest

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.interface import Reply, Request, ToolCallDelta
from tests.llm.fakes import asking, chunk, events, tool
from tests.llm.local_fakes import LocalFake, local_fake, local_server

ROLL, STOP = tool("roll", "sides", sides="integer"), tool("stop")
CALL = '{\n  "name": "roll", "arguments": {"sides": 6, "note": {"a": "}"}}\n}'


def llamacpp(fake: LocalFake, *, tools: bool, text: str, reason: str = "stop") -> None:
    caps = {"default_generation_settings": {"n_ctx": 4096}, "chat_template_caps": {"supports_tools": tools}}
    fake.at("GET /props", caps).at("GET /v1/models", {"data": [{"id": "/m/m.gguf"}]})
    said = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    fake.at("POST /v1/chat/completions", {"choices": [said], "usage": {}})


async def heard(server: LocalServer, request: Request) -> list[Any]:
    async with aclosing(server.stream(request)) as events:
        return [event async for event in events]


async def test_a_model_without_tools_calls_one_in_the_form_of_a_schema() -> None:
    async with local_fake() as fake, local_server(fake.url, "llamacpp") as server:
        llamacpp(fake, tools=False, text=CALL)
        (reply,) = await heard(server, asking(model="m", tools=(ROLL, STOP), tool_choice="required"))
        (sent,) = fake.asked("POST /v1/chat/completions")
    assert isinstance(reply, Reply) and reply.finish_reason == "tool_calls" and not reply.content
    ((call_name, arguments),) = [(call.name, call.arguments) for call in reply.tool_calls]
    assert (call_name, arguments) == ("roll", '{"sides": 6, "note": {"a": "}"}}')
    assert "tools" not in sent.body and '"name":"roll"' in sent.body["messages"][0]["content"]
    forms = sent.body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [form["properties"]["name"] for form in forms] == [{"const": "roll"}, {"const": "stop"}]


async def test_its_pieces_are_those_of_a_call() -> None:
    async with local_fake() as fake, local_server(fake.url, "llamacpp") as server:
        llamacpp(fake, tools=False, text="")
        pieces = [CALL[at : at + 3] for at in range(0, len(CALL), 3)]
        parts = [chunk({"content": piece}) for piece in pieces]
        fake.at("POST /v1/chat/completions", events(*parts, chunk({}, "stop"), "[DONE]"))
        *deltas, reply = await heard(server, asking(model="m", tools=(ROLL,), tool_choice="roll", deltas=True))
    assert all(isinstance(each, ToolCallDelta) for each in deltas) and len(deltas) > 3
    assert "".join(each.arguments for each in deltas) == reply.tool_calls[0].arguments
    assert {(each.id, each.name) for each in deltas} == {(reply.tool_calls[0].id, "roll"), (None, None)}


@pytest.mark.parametrize("text", ['{"name": "roll", "arguments": {"si', "Sure, I will roll."])
async def test_a_reply_that_is_no_call_is_an_error_with_a_remedy(text: str) -> None:
    async with local_fake() as fake, local_server(fake.url, "llamacpp") as server:
        llamacpp(fake, tools=False, text=text, reason="length")
        with pytest.raises(ModelError, match="did not call a tool: its reply reached the limit") as caught:
            await heard(server, asking(model="m", tools=(ROLL,), tool_choice="required"))
    assert caught.value.kind is ModelFault.malformed and "max_output_tokens" in (caught.value.hint or "")
    assert caught.value.detail == text


async def test_one_tool_by_name_is_the_only_one_where_the_template_has_tools() -> None:
    async with local_fake() as fake, local_server(fake.url, "llamacpp") as server:
        llamacpp(fake, tools=True, text="no")
        await heard(server, asking(model="m", tools=(ROLL, STOP), tool_choice="stop"))
        await heard(server, asking(model="m", tools=(ROLL, STOP), tool_choice="auto"))
        forced, free = fake.asked("POST /v1/chat/completions")
    assert forced.body["tool_choice"] == "required" and len(forced.body["tools"]) == 1
    assert forced.body["tools"][0]["function"]["name"] == "stop"
    assert free.body["tool_choice"] == "auto" and len(free.body["tools"]) == 2
