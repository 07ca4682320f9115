"""Parts of agent files by themselves: messages are the same after they were written and read, and a form is the same
however its bytes arrive."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kelpie.core.agents.agent_file import MessageIds
from kelpie.core.conversations.messages import (
    ApprovalDecision,
    Awaits,
    HiddenReasoning,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import MessageId
from kelpie.server.http.multipart import MultipartForm, boundary_of
from kelpie.server.letta.agent_files import file_pieces
from kelpie.server.letta.agent_files.message_document import MessageReader, message_document
from tests.server.rig import AGENT, AT, MESSAGE

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
some = st.text("ab1_", min_size=1, max_size=8)
lines = st.none() | st.lists(texts, max_size=2).map(tuple)
parts = st.one_of(
    st.builds(Text, texts),
    st.builds(Reasoning, texts, st.just(True), st.none() | some),
    st.builds(HiddenReasoning, st.none() | some),
    st.builds(Image, st.fixed_dictionaries({"type": st.just("base64"), "data": some})),
)
content = st.lists(parts, max_size=3).map(tuple)
calls = st.lists(st.builds(ToolCall, some, some, st.just("{}")), min_size=1, max_size=2).map(tuple)
waiting = st.builds(ToolCall, some, some, st.just("{}"), st.sampled_from([None, *Awaits]))
results = st.builds(ToolReturn, some, st.just("tool"), st.booleans(), texts, lines, lines, st.booleans())
rulings = st.builds(ApprovalDecision, some, st.booleans(), st.none() | texts)


def built(role: Role, **fields: Any) -> st.SearchStrategy[Message]:
    common = {"name": st.none() | some, "otid": st.none() | some, "sender_id": st.none() | some}
    fixed = (st.just(MESSAGE), st.just(AGENT), st.just(role), st.integers(AT, AT + 10**9))
    return st.builds(Message, *fixed, **({**common, **fields} if role is not Role.tool else fields))


messages = st.one_of(
    built(Role.user, content=content),
    built(Role.summary, content=content),
    built(Role.assistant, content=content),
    built(Role.assistant, content=content, tool_calls=calls, is_err=st.booleans()),
    built(Role.approval, content=content, tool_calls=st.lists(waiting, min_size=1, max_size=2).map(tuple)),
    built(Role.approval, answers=st.lists(rulings, min_size=1, max_size=2).map(tuple)),
    built(Role.tool, tool_returns=st.lists(results, min_size=1, max_size=2).map(tuple), name=st.just("tool")),
)


@given(messages)
@settings(max_examples=200)
def test_a_message_is_the_same_after_it_was_written_and_read(message: Message) -> None:
    document = message_document(message, "message-0", "agent-0", "model", {}, thoughts_in_calls=False)
    row = orjson.loads(orjson.dumps(document))
    ids = MessageIds(AGENT, {"message-0": MessageId(MESSAGE)}, {}, AT)
    assert MessageReader(ids, thoughts_in_calls=False, where="agents[0].messages").read(row) == message


names = st.sampled_from(
    [
        "id", "role", "content", "type", "text", "source", "summary", "tool_calls", "function", "name", "arguments",
        "approvals", "tool_returns", "func_response", "stdout", "approve", "tool_call_id", "created_at",
        "kelpie_awaits", "reasoning",
    ]
)  # fmt: skip
words = st.sampled_from(["", "x", "user", "tool", "approval", "assistant", "text", "image", "reasoning", "tool_call"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6),
    max_leaves=20,
)


@given(st.dictionaries(names, anything), words)
@settings(max_examples=300)
def test_whatever_a_file_has_in_the_place_of_a_message_is_read_or_refused(row: dict[str, Any], role: str) -> None:
    reader = MessageReader(MessageIds(AGENT, {"message-0": MESSAGE}, {}, AT), thoughts_in_calls=True, where="messages")
    try:
        read = reader.read({**row, "id": "message-0", "role": row.get("role", role)})
    except InvalidInput as error:
        said = str(error)
    else:
        document = message_document(read, "message-0", "agent-0", "model", {}, thoughts_in_calls=True)
        said = f"file.messages[0] {document['role']}"
    assert said.startswith("file.messages[0]")


def test_thoughts_beside_calls_stay_thoughts() -> None:
    thought = Reasoning("I look it up.", native=False)
    message = Message(MESSAGE, AGENT, Role.assistant, AT, (thought,), (ToolCall("c", "t", "{}"),))
    row = message_document(message, "message-0", "agent-0", "model", {}, thoughts_in_calls=True)
    assert row["content"] == [{"type": "text", "text": "I look it up.", "signature": None}]
    ids = MessageIds(AGENT, {"message-0": MESSAGE}, {}, AT)
    assert MessageReader(ids, thoughts_in_calls=True, where="x").read(row) == message


def test_every_message_of_a_long_history_may_be_in_the_context() -> None:
    """The limit on the values of an entry does not hold for this list, which is as long as the history."""
    ids = [f"m-{number}" for number in range(file_pieces.ENTRY_VALUES_MAX + 10)]
    one = {"id": "agent-0", "messages": [{"id": each} for each in ids], "in_context_message_ids": ids}
    head, *rest = file_pieces.split(file_pieces.answer(orjson.dumps({"agents": [one]})))
    assert orjson.loads(head)["agents"][0]["in_context_message_ids"] == ids
    assert sum(len(orjson.loads(piece)[1]) for piece in rest) == len(ids)
    wrong = {**one, "in_context_message_ids": [*ids, {}]}
    with pytest.raises(InvalidInput, match="more than 50000 values"):
        list(file_pieces.split(file_pieces.answer(orjson.dumps({"agents": [wrong]}))))


@given(st.binary(max_size=200), texts, st.lists(st.integers(0, 700), max_size=8))
@settings(max_examples=200)
def test_a_form_is_the_same_however_its_bytes_arrive(file: bytes, field: str, cuts: list[int]) -> None:
    edge = b"edge-7f3a"
    body = b"".join(
        (
            b'--%b\r\nContent-Disposition: form-data; name="name"\r\n\r\n%b\r\n' % (edge, field.encode()),
            b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%b\r\n' % (edge, file),
            b'--%b\r\nContent-Disposition: form-data; name="last"\r\n\r\nyes\r\n--%b--\r\n' % (edge, edge),
        )
    )
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})

    async def stream() -> AsyncIterator[bytes]:
        for start, stop in pairwise(places):
            yield body[start:stop]

    async def read() -> None:
        form = MultipartForm(stream(), boundary_of("multipart/form-data; boundary=edge-7f3a"))
        found = b"".join([piece async for piece in form.file()])
        assert (found, form.fields) == (file, {"name": field, "last": "yes"})

    asyncio.run(read())
