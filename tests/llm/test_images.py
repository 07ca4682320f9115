"""Images on every wire: in messages and in tool results, for models that see and for those that do not."""

import json
from typing import Any

import pytest

from kelpie.core.conversations.messages import Image, Role, Text, ToolCall, ToolReturn
from kelpie.llm.anthropic import messages_request
from kelpie.llm.local import ollama_request
from kelpie.llm.openai import chat_request, responses_request
from kelpie.llm.provider.interface import PreparedMessage, Request
from kelpie.llm.wire.image_visibility import BLIND, FORGOTTEN, HANDED, SHOWN_MAX, in_sight
from tests.llm.fakes import asking, message, said

DATA = Image({"type": "base64", "media_type": "image/png", "data": "AAAA"})
URL = Image({"type": "url", "url": "https://x.org/y.png"})


def result(call_id: str, *content: Text | Image, number: int) -> PreparedMessage:
    text = "\n".join(part.text for part in content if isinstance(part, Text))
    given = ToolReturn(call_id, "look", True, text, content=content)
    return message(Role.tool, number=number, tool_returns=(given,))


def history() -> list[PreparedMessage]:
    """Two calls whose results come in rows of their own, as those of external tools do."""
    return [
        said("look twice"),
        _calls(),
        result("a", Text("first"), DATA, number=3),
        result("b", Text("second"), URL, number=4),
        message(Role.user, "and?", number=5),
    ]


def _calls() -> PreparedMessage:
    return message(Role.assistant, number=2, tool_calls=(ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")))


def request(rows: list[PreparedMessage]) -> Request:
    return asking(messages=rows)


def test_chat_completions_take_the_images_after_all_results():
    sent = json.loads(chat_request.encode_request(request(history())))["messages"][1:]
    assert [row["role"] for row in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [row["content"] for row in sent[2:4]] == ["first", "second"]
    assert sent[4]["content"] == [
        {"type": "text", "text": HANDED},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://x.org/y.png"}},
    ]
    ended = json.loads(chat_request.encode_request(request(history()[:-1])))["messages"]
    assert ended[-1]["content"][0]["text"] == HANDED


def test_anthropic_and_responses_take_them_inside_the_result():
    sent = json.loads(messages_request.encode_request(request(history())))["messages"]
    first, second = sent[2]["content"][:2]
    assert first["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert second["content"] == [
        {"type": "text", "text": "second"},
        {"type": "image", "source": {"type": "url", "url": "https://x.org/y.png"}},
    ]
    items = json.loads(responses_request.encode_request(request(history())))["input"]
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert [[part["type"] for part in output] for output in outputs] == [["input_text", "input_image"]] * 2


def test_ollama_takes_their_data_and_words_for_their_addresses():
    sent = json.loads(ollama_request.encode_request(request(history()), None))["messages"]
    assert (sent[3]["images"], sent[3]["content"]) == (["AAAA"], "first")
    assert "images" not in sent[4] and "does not accept images by URL" in sent[4]["content"]
    one = message(Role.user, "see", DATA, number=9)
    assert ollama_request.window_for(request([one]), None) == ollama_request.WINDOW_MIN


@pytest.mark.parametrize(
    "encode",
    [
        chat_request.encode_request,
        messages_request.encode_request,
        responses_request.encode_request,
        lambda asked: ollama_request.encode_request(asked, None),
    ],
)
def test_a_model_that_cannot_see_reads_a_sentence_instead(encode: Any):
    rows = [*history(), message(Role.user, "this", DATA, number=6)]
    sent = encode(request(list(in_sight(rows, sees=False)))).decode()
    assert "AAAA" not in sent and "x.org" not in sent and sent.count(BLIND[1:-1]) == 3
    assert "AAAA" in encode(request(list(in_sight(rows, sees=True)))).decode()  # the rows are as they were


def test_of_very_many_images_the_newest_are_shown():
    rows = [message(Role.user, f"number {i}", DATA, number=i + 1) for i in range(SHOWN_MAX + 2)]
    shown = in_sight(rows, sees=True)
    assert [FORGOTTEN in row.message.text for row in shown] == [True] * 2 + [False] * SHOWN_MAX
    assert in_sight(rows, sees=True)[0] is shown[0]  # so that it is encoded once
    plain = [said("hi")]
    assert in_sight(plain, sees=False) is plain
