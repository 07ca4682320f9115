"""A conversation that grows: what is kept of its beginning never changes the request."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import orjson
import pytest

from kelpie.core.conversations.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolReturn
from kelpie.core.ids import AgentId, MessageId
from kelpie.llm.anthropic import messages_request
from kelpie.llm.openai import chat_request, responses_request
from kelpie.llm.provider.interface import EncodedBeginning, PreparedHistory, PreparedMessage, Request

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")
FORMATS: dict[str, Callable[[Request], bytes]] = {
    "chat": chat_request.encode_request,
    "responses": responses_request.encode_request,
    "anthropic": messages_request.encode_request,
}
FORGETFUL = {"responses": responses_request.forget_thoughts, "anthropic": messages_request.forget_thoughts}


def message(random: Random, number: int) -> Message:
    role = random.choice((Role.user, Role.assistant, Role.tool, Role.summary, Role.system))
    text = random.choice(("", "yes", "no, “never”", "x" * 200))
    content: tuple[Part, ...] = (Text(text),) if text else ()
    if role is Role.assistant and random.random() < 0.3:
        content = (Reasoning("hm", native=True, signature="signed"), *content)
    calls = (ToolCall(f"call-{number}", "look", '{"at": 1}'),) if role is Role.assistant and number % 3 == 0 else ()
    returns = (ToolReturn(f"call-{number - 1}", "look", True, "seen"),) if role is Role.tool else ()
    made = MessageId(f"message-00000000-0000-4000-8000-{number:012d}")
    return Message(made, AGENT, role, number, content, calls, returns)


def request(messages: list[PreparedMessage]) -> Request:
    return Request("gpt-4o-mini", "You help.", messages)


def whole(messages: list[PreparedMessage]) -> list[PreparedMessage]:
    """The same messages, nothing of which was ever encoded."""
    return [PreparedMessage(each.message) for each in messages]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(20))
def test_a_growing_conversation_is_sent_as_if_it_were_encoded_anew(name: str, seed: int) -> None:
    random, encode = Random(seed), FORMATS[name]
    kept: dict[str, EncodedBeginning] = {}
    entries: list[PreparedMessage] = []
    for number in range(25):
        new = [PreparedMessage(message(random, 10 * number + i)) for i in range(random.randrange(3))]
        shown = PreparedHistory(entries, kept)
        shown += new
        expected = encode(request(whole(shown)))
        assert encode(request(shown)) == expected
        assert encode(request(shown)) == expected, "a second time, as a retry does"
        orjson.loads(expected)
        if random.random() < 0.8:  # else the step failed, and its input is not part of the conversation
            entries += new


@pytest.mark.parametrize(("name", "signature"), [("responses", "gAAAAsigned"), ("anthropic", "Esigned")])
def test_thoughts_that_the_provider_refused_are_not_in_what_was_kept(name: str, signature: str) -> None:
    encode, thought = FORMATS[name], Reasoning("hm", native=True, signature=signature)
    hello = Message(MessageId("message-00000000-0000-4000-8000-000000000001"), AGENT, Role.user, 1, (Text("hello"),))
    reply = replace(hello, role=Role.assistant, content=(thought, Text("hi")))
    entries = [PreparedMessage(hello), PreparedMessage(reply), PreparedMessage(hello)]
    shown = PreparedHistory(entries, {})
    assert b"signed" in encode(request(shown))
    assert FORGETFUL[name](request(shown))
    assert b"signed" not in encode(request(shown))
    later = PreparedHistory([*entries, PreparedMessage(hello)], shown.encoded)
    assert b"signed" not in encode(request(later))


def test_the_beginning_of_a_later_prompt_is_not_used_for_an_earlier_one() -> None:
    random, kept = Random(1), dict[str, EncodedBeginning]()
    entries = [PreparedMessage(message(random, number)) for number in range(10)]
    for name, encode in FORMATS.items():
        encode(request(PreparedHistory(entries, kept)))
        early = PreparedHistory(entries[:4], kept)
        assert encode(request(early)) == encode(request(whole(entries[:4]))), name
