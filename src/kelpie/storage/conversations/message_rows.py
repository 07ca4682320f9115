"""Conversion of messages to columns and back. The stored JSON format is stable: operators' databases contain it."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from sqlalchemy import Row

from kelpie.core.conversations.messages import (
    LOST,
    ApprovalDecision,
    Awaits,
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
from kelpie.core.conversations.questions import questions_from_json, questions_to_json
from kelpie.core.errors import InvariantBroken
from kelpie.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from kelpie.storage.rows.checksums import checksum, checksum_and_size, report
from kelpie.storage.rows.standard_texts import SystemContent
from kelpie.storage.tables import messages


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image", "source": dict(part.source)}
        case Reasoning():
            return {"type": "reasoning", "text": part.text, "native": part.native, "signature": part.signature}
        case HiddenReasoning():
            return {"type": "hidden_reasoning", "data": part.data}


def _part_from_json(data: dict[str, Any]) -> Part:
    match data["type"]:
        case "text":
            return Text(data["text"])
        case "image":
            return Image(data["source"])
        case "reasoning":
            return Reasoning(data["text"], data["native"], data["signature"])
        case "hidden_reasoning":
            return HiddenReasoning(data["data"])
        case other:
            raise InvariantBroken(f"a stored message has a part of unknown type '{other}'")


def content_to_json(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [_part_to_json(part) for part in parts]


def content_from_json(data: Iterable[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple([_part_from_json(part) for part in data])


def _return_to_json(result: ToolReturn) -> dict[str, Any]:
    return {
        "call_id": result.call_id,
        "name": result.name,
        "ok": result.ok,
        "text": result.text,
        "stdout": result.stdout,
        "stderr": result.stderr,
        **({"untried": True} if result.untried else {}),
        **({"ran_with": result.ran_with} if result.ran_with is not None else {}),
        **({"content": content_to_json(result.content)} if result.content else {}),
    }


def _return_from_json(data: dict[str, Any]) -> ToolReturn:
    return ToolReturn(
        data["call_id"],
        data["name"],
        data["ok"],
        data["text"],
        _lines(data["stdout"]),
        _lines(data["stderr"]),
        data.get("untried", False),
        data.get("ran_with"),
        content_from_json(data.get("content", ())),
    )


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    awaits = {"awaits": call.awaits.value} if call.awaits else {}
    asked = {"questions": questions_to_json(call.questions)} if call.questions else {}
    return {"id": call.id, "name": call.name, "arguments": call.arguments, **awaits, **asked}


def _call_from_json(data: dict[str, Any]) -> ToolCall:
    awaits = Awaits(data["awaits"]) if "awaits" in data else None
    asked = questions_from_json(data["questions"]) if "questions" in data else None
    return ToolCall(data["id"], data["name"], data["arguments"], awaits, asked)


def answers_to_json(answers: Iterable[CallAnswer]) -> list[dict[str, Any]]:
    return [_answer_to_json(answer) for answer in answers]


def answers_from_json(data: Iterable[dict[str, Any]] | None) -> tuple[CallAnswer, ...]:
    return tuple([_answer_from_json(answer) for answer in data]) if data else ()


def _answer_to_json(answer: CallAnswer) -> dict[str, Any]:
    if isinstance(answer, ToolReturn):
        return {"type": "return", **_return_to_json(answer)}
    return {
        "type": "ruling",
        "call_id": answer.call_id,
        "approve": answer.approve,
        "reason": answer.reason,
        "arguments": answer.arguments,
    }


def _answer_from_json(data: dict[str, Any]) -> CallAnswer:
    if data["type"] == "return":
        return _return_from_json(data)
    return ApprovalDecision(data["call_id"], data["approve"], data["reason"], data["arguments"])


def _lines(data: list[str] | None) -> tuple[str, ...] | None:
    return None if data is None else tuple(data)


def to_row(message: Message, seq: int) -> dict[str, Any]:
    row = _columns(message, seq)
    if message.role is Role.system:
        row["content"] = SystemContent(row["content"])
    row["checksum"] = checksum(row["role"], row["content"], row["tool_calls"], row["tool_returns"], row["answers"])
    return row


def rewritten(content: Iterable[Part]) -> dict[str, Any]:
    """The columns of a system message with new text."""
    told = SystemContent(content_to_json(content))
    return {"content": told, "checksum": checksum(Role.system.value, told, [], [], None)}


def _columns(message: Message, seq: int) -> dict[str, Any]:
    return {
        "id": message.id,
        "agent_id": message.agent_id,
        "seq": seq,
        "conversation_id": message.conversation_id,
        "role": message.role.value,
        "content": content_to_json(message.content),
        "tool_calls": [_call_to_json(call) for call in message.tool_calls],
        "tool_returns": [_return_to_json(r) for r in message.tool_returns],
        "name": message.name,
        "otid": message.otid,
        "sender_id": message.sender_id,
        "group_id": message.group_id,
        "run_id": message.run_id,
        "step_id": message.step_id,
        "is_err": message.is_err,
        "answers": answers_to_json(message.answers) if message.answers else None,
        "created_at": message.created_at,
    }


_ROLES = {role.value: role for role in Role}
_NAMES = tuple(messages.c.keys())
_OTHERS = 400  # bytes of the other columns
_summed = itemgetter("role", "content", "tool_calls", "tool_returns", "answers")
_often_empty = itemgetter("conversation_id", "run_id", "step_id", "tool_calls", "tool_returns")


def from_row(row: Row[Any]) -> Message:
    """The message of a row whose statement selects the columns of messages before anything else; one whose row is
    damaged is `lost`, and that is logged."""
    return _from_values(dict(zip(_NAMES, row, strict=False)))  # a column of a row by its name costs ten times as much


def from_rows_within(rows: Iterable[Row[Any]], bytes_max: int | None) -> list[Message]:
    """The messages of the first rows that have at most this many bytes together, and always the first one. Reads no row
    beyond the one that is too many.
    """
    found: list[Message] = []
    size = 0
    for row in rows:
        values = dict(zip(_NAMES, row, strict=False))
        found_sum, told_bytes = checksum_and_size(*_summed(values))
        size += told_bytes + _OTHERS
        if found and bytes_max is not None and size > bytes_max:
            break
        found.append(_from_values(values, found_sum))
    return found


def _from_values(row: Mapping[str, Any], found: int | None = None) -> Message:
    """`found` is the checksum of what the row says now, where the caller knows it."""
    if row["checksum"] is not None and row["checksum"] != (checksum(*_summed(row)) if found is None else found):
        return _lost(row)
    conversation, run_id, step_id, calls, returns = _often_empty(row)
    return Message(
        MessageId(row["id"]),
        AgentId(row["agent_id"]),
        _ROLES[row["role"]],
        row["created_at"],
        content_from_json(row["content"]),
        tuple([_call_from_json(call) for call in calls]) if calls else (),
        tuple([_return_from_json(each) for each in returns]) if returns else (),
        ConversationId(conversation) if conversation else None,
        row["name"],
        row["otid"],
        row["sender_id"],
        row["group_id"],
        RunId(run_id) if run_id else None,
        StepId(step_id) if step_id else None,
        row["is_err"],
        answers_from_json(row["answers"]),
        row["seq"],
    )


def is_whole(row: Mapping[str, Any]) -> bool:
    """Checks whether a row matches its checksum."""
    return row["checksum"] is None or row["checksum"] == checksum(*_summed(row))


def _lost(row: Mapping[str, Any]) -> Message:
    report("message", row["id"])
    conversation, run_id, step_id, _, _ = _often_empty(row)
    return Message(
        id=MessageId(row["id"]),
        agent_id=AgentId(row["agent_id"]),
        role=_ROLES.get(row["role"], Role.user),
        created_at=row["created_at"],
        content=LOST,
        conversation_id=ConversationId(conversation) if conversation else None,
        run_id=RunId(run_id) if run_id else None,
        step_id=StepId(step_id) if step_id else None,
        seq=row["seq"],
    )


def message_to_json(message: Message) -> dict[str, Any]:
    """A message by value, for records that must not change when the history does."""
    return to_row(message, message.seq)


def message_from_json(data: dict[str, Any]) -> Message:
    return _from_values({"checksum": None, **data})
