"""The demo model: what a newcomer tries with it works, and tests can make it say anything."""

import json
from typing import Any

import pytest

from kelpie.core.conversations.messages import Reasoning, Role, Text, ToolCall
from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.demo.provider import DemoProvider
from kelpie.llm.demo.script import Call, Line
from kelpie.llm.provider.interface import (
    Event,
    PreparedMessage,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
)
from tests.llm.fakes import asking, called, message, returned, said, tool

V1_TOOLS = [
    tool("conversation_search", query="string"),
    tool(
        "memory_replace", "label", "old_string", "new_string", label="string", old_string="string", new_string="string"
    ),
    tool("memory_insert", "label", "new_string", label="string", new_string="string", insert_line="integer"),
]
HEARTBEAT = {"thinking": "string", "request_heartbeat": "boolean"}
MEMGPT_TOOLS = [
    tool("send_message", "message", message="string", thinking="string"),
    tool("core_memory_append", "label", "content", label="string", content="string", **HEARTBEAT),
    tool("core_memory_replace", label="string", old_content="string", new_content="string", **HEARTBEAT),
]


def prompt(**blocks: str) -> str:
    """A system prompt as agents have it."""
    shown = "".join(
        f"<{label}>\n<description>\nAbout {label}.\n</description>\n<metadata>\n"
        f"{'- read_only=true' if label == 'rules' else ''}\n- chars_current={len(value)}\n- chars_limit=100\n"
        f"</metadata>\n<value>\n{value}\n</value>\n</{label}>\n\n"
        for label, value in blocks.items()
    )
    return f"You are an agent.\n<memory_blocks>\nYour memory:\n\n{shown}</memory_blocks>\n<other>\nno\n</other>"


async def reply_to(request: Request, provider: DemoProvider | None = None) -> Reply:
    given = [event async for event in (provider or DemoProvider()).stream(request)]
    assert len(given) == 1 and isinstance(given[0], Reply)
    return given[0]


def v1(*history: PreparedMessage | str, tools: list[ToolSchema] | None = None, **blocks: str) -> Request:
    messages = [said(one, number) if isinstance(one, str) else one for number, one in enumerate(history)]
    chosen = V1_TOOLS if tools is None else tools
    return asking(messages=messages, tools=chosen, system=prompt(**(blocks or {"human": "", "persona": "I am kind."})))


def memgpt(*history: PreparedMessage | str, **blocks: str) -> Request:
    made = v1(*history, tools=MEMGPT_TOOLS, **blocks)
    return asking(messages=made.messages, tools=MEMGPT_TOOLS, system=made.system, tool_choice="required")


def text(reply: Reply) -> str:
    assert not reply.tool_calls and reply.finish_reason == "stop"
    return "".join(part.text for part in reply.content if isinstance(part, Text))


def call(reply: Reply) -> tuple[str, dict[str, Any]]:
    assert len(reply.tool_calls) == 1 and reply.finish_reason == "tool_calls"
    return reply.tool_calls[0].name, json.loads(reply.tool_calls[0].arguments)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("My name is Ada.", "Name: Ada"),
        ("Hello, my name is Ada Lovelace and I like tea", "Name: Ada Lovelace\nLikes tea"),
        ("I really love long walks.", "Loves long walks"),
        ("Please remember that my cat is called Tom.", "my cat is called Tom"),
        ("remember: the door code is 1234", "the door code is 1234"),
        ("Remember that my name is Ada", "Name: Ada"),
        ("Remember my name is Ada and my cat is Tom", "my name is Ada and my cat is Tom"),
    ],
)
async def test_facts_are_written_to_the_human_block(words: str, fact: str):
    assert call(await reply_to(v1(words))) == ("memory_insert", {"label": "human", "new_string": fact})


async def test_a_memgpt_agent_keeps_facts_and_goes_on():
    name, arguments = call(await reply_to(memgpt("My name is Ada.", human="")))
    assert name == "core_memory_append"
    assert arguments.pop("thinking")
    assert arguments == {"label": "human", "content": "Name: Ada", "request_heartbeat": True}


async def test_what_was_kept_is_confirmed_in_a_sentence():
    history = ("My name is Ada.", called("memory_insert"), returned("memory_insert", "Name: Ada"))
    assert text(await reply_to(v1(*history))) == "I will remember: Name: Ada."
    packed = returned("core_memory_append", '{"status": "OK", "message": "None", "time": "now"}')
    name, arguments = call(await reply_to(memgpt("My name is Ada.", called("core_memory_append"), packed, human="")))
    assert (name, arguments["message"]) == ("send_message", "I will remember: Name: Ada.")
    assert "request_heartbeat" not in arguments


async def test_a_heartbeat_does_not_begin_a_new_turn():
    heartbeat = said('{"type": "heartbeat", "reason": "go on"}', 9)
    history = ("My name is Ada.", called("core_memory_append"), returned("core_memory_append", "ok"), heartbeat)
    assert call(await reply_to(memgpt(*history, human="")))[1]["message"] == "I will remember: Name: Ada."


async def test_a_new_name_replaces_the_old_one():
    arguments = {"label": "human", "old_string": "Name: Ada", "new_string": "Name: Grace"}
    assert call(await reply_to(v1("My name is Grace", human="Name: Ada\nLikes tea"))) == ("memory_replace", arguments)


async def test_what_is_known_is_not_written_twice():
    assert "already" in text(await reply_to(v1("I like tea", human="Likes tea")))


async def test_read_only_blocks_are_left_alone():
    name, arguments = call(await reply_to(v1("I like tea", rules="none", notes="")))
    assert (name, arguments["label"]) == ("memory_insert", "notes")
    assert "cannot save" in text(await reply_to(v1("I like tea", rules="none")))
    assert "cannot save" in text(await reply_to(v1("I like tea", tools=[])))


@pytest.mark.parametrize("words", ["Archive that the sky is blue", "Please remember in your archive: the sky is blue"])
async def test_the_archive(words: str):
    tools = [*V1_TOOLS, tool("archival_memory_insert", "content", content="string")]
    assert call(await reply_to(v1(words, tools=tools))) == ("archival_memory_insert", {"content": "the sky is blue"})
    history = (words, called("archival_memory_insert"), returned("archival_memory_insert", "ok"))
    assert "archive" in text(await reply_to(v1(*history, tools=tools)))


@pytest.mark.parametrize(
    ("words", "line"), [("Forget that I like tea", "Likes tea\n"), ("please forget my name.", "Name: Ada\n")]
)
async def test_forgetting(words: str, line: str):
    memory: dict[str, Any] = {"human": "Name: Ada\nLikes tea\nLives in London", "persona": "I like my name."}
    name, arguments = call(await reply_to(v1(words, **memory)))
    assert (name, arguments) == ("memory_replace", {"label": "human", "old_string": line, "new_string": ""})
    history = (words, called("memory_replace"), returned("memory_replace", "ok"))
    assert text(await reply_to(v1(*history, **memory))) == "I have forgotten that."


async def test_there_may_be_nothing_to_forget():
    assert "nothing" in text(await reply_to(v1("forget the weather", human="Likes tea")))


async def test_questions_are_answered_from_the_prompt():
    memory: dict[str, Any] = {"human": "Name: Ada\nLikes tea", "persona": "My name is Kelpie."}
    assert text(await reply_to(v1("What is my name?", **memory))) == "Your name is Ada."
    known = text(await reply_to(v1("What do you know about me?", **memory)))
    assert "Likes tea" in known and "Kelpie" not in known
    assert "do not know" in text(await reply_to(v1("what's my name", human="", persona="My name is Kelpie.")))
    assert "nothing" in text(await reply_to(v1("What do you remember?")))


async def test_a_question_is_not_a_fact():
    assert text(await reply_to(v1("Do you remember that I like tea?")))


async def test_searching():
    assert call(await reply_to(v1("Search for the door code."))) == (
        "conversation_search",
        {"query": "the door code"},
    )
    assert "conversation_search" in text(await reply_to(v1("search for it", tools=[])))
    history = ("search for tea", called("conversation_search"), returned("conversation_search", "[1 hit]"))
    assert "[1 hit]" in text(await reply_to(v1(*history)))


@pytest.mark.parametrize("words", ['use roll {"sides": 6}', 'Please call the tool `roll` with {"sides": 6}.'])
async def test_any_tool_by_name(words: str):
    request = v1(words, tools=[tool("roll", "sides", sides="integer")])
    assert call(await reply_to(request)) == ("roll", {"sides": 6})
    assert (await reply_to(request)).tool_calls == (await reply_to(request)).tool_calls
    failed = (words, called("roll"), returned("roll", "no dice", ok=False))
    assert text(await reply_to(v1(*failed))) == "The tool roll failed: no dice"


async def test_a_tool_that_is_not_there_or_not_understood():
    assert "no tool named fly" in text(await reply_to(v1("use fly {}")))
    assert "not JSON" in text(await reply_to(v1("use memory_insert {oops}")))
    assert "You said" in text(await reply_to(v1("use your imagination")))


@pytest.mark.parametrize("words", ["Hello!", "what can you do?", "The weather is fine.", ""])
async def test_it_says_plainly_that_it_is_a_demo(words: str):
    answer = text(await reply_to(v1(words)))
    assert "demo model" in answer and "not a language model" in answer


async def test_every_answer_of_a_memgpt_agent_is_a_tool_call():
    name, arguments = call(await reply_to(memgpt("Hello!", human="Name: Ada")))
    assert name == "send_message"
    assert arguments["message"].startswith("Hello, Ada!") and arguments["thinking"]


async def test_a_forced_tool_is_called_with_fitting_arguments():
    forced = tool("finish", "note", "count", note="string", count="integer", more="string")
    request = asking(tools=[*V1_TOOLS, forced], tool_choice="finish")
    assert call(await reply_to(request)) == ("finish", {"note": "demo", "count": 1})
    assert call(await reply_to(asking(tools=[forced], tool_choice="required")))[0] == "finish"


async def test_without_leave_to_call_it_speaks():
    assert text(await reply_to(asking("My name is Ada", tools=V1_TOOLS, tool_choice="none", system=prompt(human=""))))


@pytest.mark.parametrize("request_", [v1("Hello there!"), v1("My name is Ada."), memgpt("Hello!", human="")])
async def test_deltas_add_up_to_the_reply(request_: Request):
    streamed = asking(
        messages=request_.messages,
        tools=request_.tools,
        system=request_.system,
        tool_choice=request_.tool_choice,
        deltas=True,
    )
    given: list[Event] = [event async for event in DemoProvider().stream(streamed)]
    reply = given.pop()
    assert reply == await reply_to(request_)
    assert isinstance(reply, Reply) and len(given) >= 3
    assert "".join(delta.text for delta in given if isinstance(delta, TextDelta)) == "".join(
        part.text for part in reply.content if isinstance(part, Text)
    )
    arguments = "".join(delta.arguments for delta in given if isinstance(delta, ToolCallDelta))
    assert arguments == "".join(one.arguments for one in reply.tool_calls)
    assert reply.usage.completion_tokens > 0
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


async def test_ids_of_calls_differ_from_step_to_step():
    first = (await reply_to(v1("My name is Ada."))).tool_calls[0].id
    second = (await reply_to(v1("Hi", "My name is Ada."))).tool_calls[0].id
    assert first != second


async def test_a_script_of_lines():
    lines = [
        Line("one"),
        Line(calls=(Call("roll", {"sides": 6}), Call("roll", "{broken"))),
        Line(reasoning="hm", text="x"),
    ]
    demo = DemoProvider(lines)
    assert text(await reply_to(asking(), demo)) == "one"
    both = (await reply_to(asking(), demo)).tool_calls
    assert [(one.name, one.arguments) for one in both] == [("roll", '{"sides":6}'), ("roll", "{broken")]
    assert both[0].id != both[1].id
    assert (await reply_to(asking(), demo)).content == (Reasoning("hm"), Text("x"))
    with pytest.raises(ModelError, match="no more replies"):
        await reply_to(asking(), demo)


async def test_a_script_as_a_function():
    demo = DemoProvider(lambda request: Line(f"{len(request.messages)} messages"))
    assert text(await reply_to(asking(), demo)) == "1 messages"


async def test_a_script_in_a_message_goes_line_by_line_through_the_turn():
    script = '!script [{"calls": [{"name": "roll", "arguments": {"sides": 6}}]}, {"text": "Done."}]'
    history: list[PreparedMessage | str] = [script]
    assert call(await reply_to(v1(*history))) == ("roll", {"sides": 6})
    history += [called("roll"), returned("roll", "4")]
    assert text(await reply_to(v1(*history))) == "Done."
    history += [message(Role.assistant, "Done.", number=5)]
    assert "no more" in text(await reply_to(v1(*history)))
    assert "Hello" in text(await reply_to(v1(*history, "Hello!")))


async def test_a_scripted_text_is_sent_as_the_agent_must():
    name, arguments = call(await reply_to(memgpt('!script [{"text": "Done."}]', human="")))
    assert (name, arguments["message"]) == ("send_message", "Done.")


async def test_a_script_can_fail_after_some_words():
    request = asking('!script [{"text": "Well, I", "error": "llm_rate_limit", "reasoning": "hm"}]', deltas=True)
    stream = DemoProvider().stream(request)
    given = [await anext(stream) for _ in range(3)]
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    assert caught.value.kind is ModelFault.rate_limit
    assert given == [ReasoningDelta("hm"), TextDelta("Well, "), TextDelta("I")]


@pytest.mark.parametrize(
    "script", ["{", '{"text": 1}', '["hi"]', '[{"txt": "hi"}]', '[{"error": "boom"}]', '[{"calls": [{}]}]']
)
async def test_a_broken_script_is_told(script: str):
    assert "cript" in text(await reply_to(v1(f"!script {script}")))


async def test_approval_rows_count_as_the_steps_they_are():
    asked = message(Role.approval, tool_calls=(ToolCall("call_1", "roll", "{}"),), number=2)
    answered = message(Role.approval, number=3)
    history = ('!script [{"calls": [{"name": "roll"}]}, {"text": "Done."}]', asked, answered, returned("roll", "4"))
    assert text(await reply_to(v1(*history))) == "Done."
