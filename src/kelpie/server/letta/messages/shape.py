"""A stored message as Letta's clients see it: one row becomes one or several wire messages that share its id.

Order: the parts of the content, then one message with the tool calls. Each has its own `otid`, made from the row's uuid
and the position of the message in the row, so a client can tell them apart and match deltas with them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.agent.prompt.summary import read_summary
from kelpie.core.conversations.messages import (
    ApprovalDecision,
    CallAnswer,
    HiddenReasoning,
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.ids import MessageId
from kelpie.server.http.times import date

_PLACE_BITS = 0x7F


@dataclass(frozen=True, slots=True)
class View:
    """The message format a client asked for; with `use_assistant_message`, a call of the answering tool is shown as an
    answer.
    """

    use_assistant_message: bool = True
    tool_name: str = "send_message"
    tool_kwarg: str = "message"
    types: frozenset[str] | None = None
    compaction: bool = False  # whether summaries and the events of compaction are shown as what they are

    def shows(self, message_type: str) -> bool:
        return self.types is None or message_type in self.types

    def answers_with(self, tool_name: str) -> bool:
        return self.use_assistant_message and tool_name == self.tool_name


PLAIN = View()


def messages(rows: Iterable[Message], view: View = PLAIN) -> list[dict[str, Any]]:
    """The wire messages of rows, in the order of the rows."""
    return [message for row in rows for message in wire_messages(row, view)]


def wire_messages(row: Message, view: View = PLAIN) -> list[dict[str, Any]]:
    """The wire messages of one row."""
    if row.role is Role.tool:
        found = _tool_returns(row, view)
    elif row.is_reply:
        found = _assistant(row, view)
    elif row.role is Role.summary and view.compaction:
        found = [_summary(row)]
    elif row.role is Role.approval:
        found = [_answers(row)]
    else:
        found = [_input_message(row)]
    if view.types is None:
        return found
    return [message for message in found if view.shows(message["message_type"])]


def part_otid(message_id: MessageId, place: int) -> str:
    """The id of the message at a position within its row: the row's uuid, its low seven bits replaced."""
    uuid = message_id.uuid
    return f"{uuid[:-2]}{(int(uuid[-2:], 16) & ~_PLACE_BITS) | (place & _PLACE_BITS):02x}"


def envelope(
    message_type: str,
    message_id: str,
    *,
    at: int,
    otid: str | None,
    step_id: str | None = None,
    run_id: str | None = None,
    name: str | None = None,
    sender_id: str | None = None,
    is_err: bool = False,
) -> dict[str, Any]:
    """The keys of every message; null keys are sent, as clients expect."""
    return {
        "id": message_id,
        "date": date(at),
        "name": name,
        "message_type": message_type,
        "otid": otid,
        "sender_id": sender_id,
        "step_id": step_id,
        "is_err": True if is_err else None,
        "seq_id": None,
        "run_id": run_id,
    }


def call_shape(call: ToolCall) -> dict[str, Any]:
    shape = {"name": call.name, "arguments": call.arguments, "tool_call_id": call.id}
    return shape if call.questions is None else shape | {"kelpie_questions": _questions(call.questions)}


def _questions(asked: ToolQuestions) -> list[dict[str, Any]]:
    """The questions that a person answers with an approval."""
    return [
        {"key": key, "message": each.message, "schema": each.schema, "url": each.url, "server_name": asked.server}
        for key, each in asked.questions.items()
        if key in asked.open
    ]


def answer_in(call: ToolCall, kwarg: str) -> str | None:
    """The text of a call of the answering tool; None when its arguments cannot be read."""
    try:
        arguments = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return None
    text = arguments.get(kwarg) if isinstance(arguments, dict) else None
    return text if isinstance(text, str) else None


def _of_row(row: Message, message_type: str, otid: str | None, name: str | None = None) -> dict[str, Any]:
    return envelope(
        message_type,
        row.id,
        at=row.created_at,
        otid=otid,
        step_id=row.step_id,
        run_id=row.run_id,
        name=name,
        sender_id=row.sender_id,
        is_err=row.is_err,
    )


def _input_message(row: Message) -> dict[str, Any]:
    """A message of a user or of the system. A summary reads as a user's message."""
    kind = "system_message" if row.role is Role.system else "user_message"
    content: Any = row.text
    if row.role is not Role.system and (len(row.content) > 1 or any(isinstance(part, Image) for part in row.content)):
        content = [part_shape(part) for part in row.content]
    message = _of_row(row, kind, row.otid, row.name)
    message["content"] = content
    return message


def _summary(row: Message) -> dict[str, Any]:
    read = read_summary(row)
    head = _of_row(row, "summary_message", part_otid(row.id, 0), row.name)
    return head | {"summary": read.text, "compaction_stats": read.stats}


def part_shape(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text, "signature": None}
        case Image():
            return {"type": "image", "source": dict(part.source)}
        case Reasoning():
            return {"type": "reasoning", "reasoning": part.text, "is_native": part.native, "signature": part.signature}
        case HiddenReasoning():
            return {"type": "redacted_reasoning", "data": part.data or ""}


def _assistant(row: Message, view: View) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(message_type: str, **fields: Any) -> None:
        message = _of_row(row, message_type, part_otid(row.id, len(found)), row.name)
        message.update(fields)
        found.append(message)

    for part in row.content:
        match part:
            case Text():
                add("assistant_message", assistant_id=row.agent_id, content=part.text)
            case Reasoning():
                source = "reasoner_model" if part.native else "non_reasoner_model"
                add("reasoning_message", source=source, reasoning=part.text, signature=part.signature)
            case HiddenReasoning():
                state = "omitted" if part.data is None else "redacted"
                add("hidden_reasoning_message", state=state, hidden_reasoning=part.data)
            case Image():
                add("assistant_message", assistant_id=row.agent_id, content=[part_shape(part)])
    calls: list[ToolCall] = []
    for call in row.tool_calls:
        answer = answer_in(call, view.tool_kwarg) if view.answers_with(call.name) and not call.awaits else None
        if answer is None:
            calls.append(call)
        else:
            add("assistant_message", assistant_id=row.agent_id, content=answer)
    if shapes := [call_shape(call) for call in calls if not call.awaits]:
        add("tool_call_message", tool_call=shapes[0], tool_calls=shapes)
    if shapes := [call_shape(call) for call in calls if call.awaits]:
        request = _of_row(row, "approval_request_message", row.id, row.name)
        found.append(request | {"tool_call": shapes[0], "tool_calls": shapes})
    return found


def request_shape(row: Message) -> dict[str, Any]:
    """The approval request of a reply with waiting calls."""
    return _assistant(row, PLAIN)[-1]


def _answers(row: Message) -> dict[str, Any]:
    """Answers to waiting calls; the old single fields show the first of them."""
    first = row.answers[0] if row.answers else None
    ruling = first if isinstance(first, ApprovalDecision) else None
    return _of_row(row, "approval_response_message", row.otid, row.name) | {
        "approvals": [_answer_shape(answer) for answer in row.answers],
        "approve": ruling.approve if ruling else None,
        "approval_request_id": ruling.call_id if ruling else None,
        "reason": ruling.reason if ruling else None,
    }


def _answer_shape(answer: CallAnswer) -> dict[str, Any]:
    if isinstance(answer, ToolReturn):
        return _return_shape(answer)
    shape = {
        "type": "approval",
        "tool_call_id": answer.call_id,
        "approve": answer.approve,
        "reason": answer.reason,
    }
    return shape if answer.arguments is None else shape | {"arguments": answer.arguments}


def _tool_returns(row: Message, view: View) -> list[dict[str, Any]]:
    shown: Sequence[ToolReturn] = [
        result for result in row.tool_returns if not (result.ok and view.answers_with(result.name))
    ]
    if not shown:
        return []
    shapes = [_return_shape(result) for result in shown]
    # The deprecated fields beside the list hold text alone.
    first = {key: value for key, value in shapes[0].items() if key != "type"} | {"tool_return": shown[0].text}
    named = row.name is None or row.name in {result.name for result in shown}
    message = _of_row(row, "tool_return_message", part_otid(row.id, 0), row.name if named else shown[0].name)
    return [message | first | {"tool_returns": shapes}]


def _return_shape(result: ToolReturn) -> dict[str, Any]:
    return {
        "type": "tool",
        "tool_return": [part_shape(part) for part in result.content] if result.content else result.text,
        "status": "success" if result.ok else "error",
        "tool_call_id": result.call_id,
        "stdout": _lines(result.stdout),
        "stderr": _lines(result.stderr),
    }


def _lines(lines: Sequence[str] | None) -> list[str] | None:
    return None if lines is None else list(lines)
