"""Messages in an agent file: Letta's stored form, read into messages and written from them.

Letta stores a tool's result packed, with its status and time, and Kelpie packs it for each prompt; so it is unpacked
here and packed again. What a user wrote was once packed too. Agents that think in an argument of their calls have these
thoughts as text beside the calls. Unknown fields are ignored; what only Kelpie has is in fields that begin with
`kelpie_`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import orjson

from kelpie.agent.prompt.rendering import packed_return, read_object
from kelpie.core.agents.agent_file import MessageIds, member
from kelpie.core.conversations.messages import (
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
from kelpie.core.errors import InvalidInput
from kelpie.core.time import Micros, as_datetime
from kelpie.server.http.times import moment

NAMES_KEPT = 10_000  # names of calls, for the results that do not say it

_ROLES = {role.value: role for role in Role} | {"function": Role.tool}

Row = Mapping[str, Any]


class MessageReader:
    """Reads the messages of one agent, in their order. `thoughts_in_calls`: text beside calls is what it thought."""

    def __init__(self, ids: MessageIds, *, thoughts_in_calls: bool, where: str) -> None:
        self._ids = ids
        self._thoughts_in_calls = thoughts_in_calls
        self._where = where
        self._names: dict[str, str] = {}
        self._requested: tuple[ToolCall, ...] = ()
        self._number = 0

    def read(self, row: Row) -> Message:
        """Raises InvalidInput."""
        where = f"{self._where}[{self._number}]"
        self._number += 1
        try:
            return self._message(row, where)
        except ValueError as error:
            raise InvalidInput(f"file.{where}", f"is not a message: {str(error)[:200]}") from None

    def _message(self, row: Row, where: str) -> Message:
        role = _ROLES.get(said := _text(row, "role"))
        if role is None:
            raise InvalidInput(f"file.{where}.role", f"'{said[:80]}' is not the role of a message")
        content, called = _content(row, "content", where)
        calls = (*self._calls(_objects(row, "tool_calls"), role), *called)
        if calls and role in (Role.assistant, Role.approval) and self._thoughts_in_calls:
            content = tuple(Reasoning(part.text, native=False) if isinstance(part, Text) else part for part in content)
        if role is Role.user:
            content = tuple(Text(_without_packing(part.text)) if isinstance(part, Text) else part for part in content)
        returns: tuple[ToolReturn, ...] = ()
        if role is Role.tool:
            returns, content = self._returns(row, content), ()
        return Message(
            id=self._ids.by_reference[row["id"]],
            agent_id=self._ids.agent_id,
            role=role,
            created_at=_time(_text_or_none(row, "created_at"), f"file.{where}.created_at", self._ids.now),
            content=content,
            tool_calls=calls if role in (Role.assistant, Role.approval) else (),
            tool_returns=returns,
            group_id=self._ids.group(_text_or_none(row, "group_id")),
            answers=self._answers(row) if role is Role.approval and not calls else (),
            is_err=row.get("kelpie_is_error") is True,
            name=_text_or_none(row, "name"),
            otid=_text_or_none(row, "otid"),
            sender_id=_text_or_none(row, "sender_id"),
        )

    def _calls(self, given: Sequence[Row], role: Role) -> tuple[ToolCall, ...]:
        """The calls of a reply, whose names are noted for their results."""
        default = Awaits.approval if role is Role.approval else None
        found: list[ToolCall] = []
        for call in given:
            named, awaits = member(call, "function"), call.get("kelpie_awaits", default)
            waits = Awaits(awaits) if awaits else None
            found.append(ToolCall(_text(call, "id"), _text(named, "name"), _text(named, "arguments"), waits))
        if len(self._names) + len(found) > NAMES_KEPT:
            self._names.clear()
        self._names.update((call.id, call.name) for call in found)
        if found and role is Role.approval:
            self._requested = tuple(found)
        return tuple(found)

    def _returns(self, row: Row, content: tuple[Part, ...]) -> tuple[ToolReturn, ...]:
        if given := _objects(row, "tool_returns"):
            return tuple(self._return(each, row) for each in given)
        said = "\n".join(part.text for part in content if isinstance(part, Text))
        ok, text = _unpacked(said)
        call_id = _text_or_none(row, "tool_call_id") or ""
        return (ToolReturn(call_id, self._name(call_id, row), ok is not False, text),)

    def _return(self, given: Row, row: Row) -> ToolReturn:
        call_id = _text_or_none(given, "tool_call_id") or ""
        name = "func_response" if "func_response" in given else "tool_return"
        said: Any = given.get(name)
        parts: tuple[Part, ...] = ()
        if isinstance(said, list):
            parts, _ = _content(given, name, "tool_returns")
            text = "\n".join(part.text for part in parts if isinstance(part, Text))
        else:
            text = _unpacked(said or "")[1]
        return ToolReturn(
            call_id,
            self._name(call_id, row),
            given.get("status") != "error",
            text,
            _lines(given, "stdout"),
            _lines(given, "stderr"),
            untried=given.get("kelpie_untried") is True,
            ran_with=_text_or_none(given, "kelpie_ran_with"),
            content=parts,
        )

    def _name(self, call_id: str, row: Row) -> str:
        return self._names.get(call_id) or _text_or_none(row, "name") or ""

    def _answers(self, row: Row) -> tuple[CallAnswer, ...]:
        if given := _objects(row, "approvals"):
            return tuple(self._answer(each, row) for each in given)
        if row.get("approve") is None:
            return ()
        reason = _text_or_none(row, "denial_reason")
        return tuple(ApprovalDecision(call.id, row["approve"] is True, reason) for call in self._requested)

    def _answer(self, given: Row, row: Row) -> CallAnswer:
        if given.get("type", "approval") != "approval" or "approve" not in given:
            return self._return(given, row)
        arguments = _text_or_none(given, "kelpie_arguments")
        return ApprovalDecision(
            _text(given, "tool_call_id"), given["approve"] is True, _text_or_none(given, "reason"), arguments
        )


def _content(row: Row, name: str, where: str) -> tuple[tuple[Part, ...], tuple[ToolCall, ...]]:
    """The parts of a message, and the calls that stand among them."""
    given = row.get(name)
    if isinstance(given, str):
        return ((Text(given),) if given else ()), ()
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for part in _objects(row, name):
        match part.get("type"):
            case "text":
                parts.append(Text(_text(part, "text")))
            case "image":
                parts.append(Image(_image_source(part)))
            case "reasoning":
                signature = _text_or_none(part, "signature")
                parts.append(Reasoning(_text(part, "reasoning"), part.get("is_native") is not False, signature))
            case "summarized_reasoning":
                said = "\n".join(_text(each, "text") for each in _objects(part, "summary"))
                parts.append(Reasoning(said))
            case "redacted_reasoning":
                parts.append(HiddenReasoning(_text(part, "data")))
            case "omitted_reasoning":
                parts.append(HiddenReasoning())
            case "tool_call":
                arguments = part.get("input") or {}
                calls.append(ToolCall(_text(part, "id"), _text(part, "name"), orjson.dumps(arguments).decode()))
            case "tool_return":
                parts.append(Text(_text(part, "content")))
            case other:
                raise InvalidInput(f"file.{where}.{name}", f"has a part of the unknown type '{str(other)[:80]}'")
    return tuple(parts), tuple(calls)


def _image_source(part: Row) -> dict[str, Any]:
    source = dict(member(part, "source"))
    if not isinstance(source.get("type"), str) or not all(isinstance(v, str | None) for v in source.values()):
        raise ValueError("the source of an image must be an object with a type and texts")
    return source


def _without_packing(text: str) -> str:
    """What the user wrote; older servers stored it packed, with its time."""
    found = read_object(text) if text.lstrip().startswith("{") else None
    if found is None or found.get("type") != "user_message" or "time" not in found:
        return text
    return found["message"] if isinstance(found.get("message"), str) else text


def _unpacked(said: Any) -> tuple[bool | None, str]:
    """A tool's result without its status and time; None: it was not packed."""
    text = said if isinstance(said, str) else orjson.dumps(said).decode()
    found = read_object(text) if text.lstrip().startswith("{") else None
    if found is None or not {"status", "message"} <= found.keys() or found["status"] not in ("OK", "Failed"):
        return None, text
    message = found["message"]
    if message is None:
        message = "None"
    return found["status"] == "OK", message if isinstance(message, str) else orjson.dumps(message).decode()


def _text(row: Row, name: str) -> str:
    value = _text_or_none(row, name)
    if value is None:
        raise ValueError(f"'{name}' is missing")
    return value


def _text_or_none(row: Row, name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"'{name}' must be text")
    return value


def _list(row: Row, name: str, kind: type, said: str) -> list[Any]:
    found: Any = row.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in cast("list[Any]", found)):
        raise ValueError(f"'{name}' must be a list of {said}")
    return cast("list[Any]", found)


def _objects(row: Row, name: str) -> list[Row]:
    return _list(row, name, dict, "objects")


def _lines(row: Row, name: str) -> tuple[str, ...] | None:
    return None if row.get(name) is None else tuple(_list(row, name, str, "texts"))


def _time(given: str | None, field: str, now: Micros) -> Micros:
    if given is None:
        return now
    try:
        found = moment(field, datetime.fromisoformat(given))
    except ValueError:
        raise InvalidInput(field, f"'{given[:80]}' is not a time; write it as 2026-01-31T14:30:00Z") from None
    return now if found is None else found


# --- writing ----------------------------------------------------------------------------------------------------------


def message_document(
    message: Message, reference: str, agent: str, model: str, groups: Mapping[str, str], *, thoughts_in_calls: bool
) -> dict[str, Any]:
    """A message as a file has it."""
    returns = [_return_document(each, message.created_at) for each in message.tool_returns]
    first = message.tool_returns[0] if message.tool_returns else None
    waits = message.role is Role.approval and message.tool_calls
    return {
        "type": "message",
        "otid": message.otid,
        "group_id": groups.get(message.group_id or ""),
        "role": message.role.value,
        "content": _content_document(message, thoughts_in_calls),
        "name": message.name or (first.name if first else None),
        "sender_id": message.sender_id,
        "batch_item_id": None,
        "id": reference,
        "model": model if message.role is not Role.user else None,
        "agent_id": agent,
        "tool_calls": [_call_document(call, message.role) for call in message.tool_calls] or None,
        "tool_call_id": first.call_id if first else message.tool_calls[0].id if waits else None,
        "tool_returns": returns,
        "created_at": as_datetime(message.created_at).isoformat(),
        "approve": None,
        "approval_request_id": None,
        "denial_reason": None,
        "approvals": [_answer_document(each, message.created_at) for each in message.answers],
        **({"kelpie_is_error": True} if message.is_err else {}),
    }


def _content_document(message: Message, thoughts_in_calls: bool) -> list[dict[str, Any]]:
    if message.tool_returns:
        first = message.tool_returns[0]
        return [_text_document(packed_return(first, message.created_at))]
    beside_calls = thoughts_in_calls and bool(message.tool_calls)
    return [_part_document(part, beside_calls) for part in message.content]


def _part_document(part: Part, beside_calls: bool = False) -> dict[str, Any]:
    match part:
        case Text():
            return _text_document(part.text)
        case Image():
            return {"type": "image", "source": dict(part.source)}
        case Reasoning():
            if beside_calls and not part.native:
                return _text_document(part.text)
            return {
                "type": "reasoning",
                "is_native": part.native,
                "reasoning": part.text,
                "signature": part.signature,
            }
        case HiddenReasoning():
            if part.data is None:
                return {"type": "omitted_reasoning", "signature": None}
            return {"type": "redacted_reasoning", "data": part.data}


def _text_document(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "signature": None}


def _call_document(call: ToolCall, role: Role) -> dict[str, Any]:
    usual = Awaits.approval if role is Role.approval else None
    return {
        "id": call.id,
        "function": {"arguments": call.arguments, "name": call.name},
        "type": "function",
        **({} if call.awaits is usual else {"kelpie_awaits": call.awaits}),
    }


def _return_document(result: ToolReturn, at: Micros) -> dict[str, Any]:
    said: Any = packed_return(result, at) if not result.content else [_part_document(part) for part in result.content]
    return {
        "tool_call_id": result.call_id,
        "status": "success" if result.ok else "error",
        "stdout": None if result.stdout is None else list(result.stdout),
        "stderr": None if result.stderr is None else list(result.stderr),
        "func_response": said,
        **({"kelpie_untried": True} if result.untried else {}),
        **({"kelpie_ran_with": result.ran_with} if result.ran_with is not None else {}),
    }


def _answer_document(answer: CallAnswer, at: Micros) -> dict[str, Any]:
    if isinstance(answer, ApprovalDecision):
        return {
            "type": "approval",
            "tool_call_id": answer.call_id,
            "approve": answer.approve,
            "reason": answer.reason,
            **({} if answer.arguments is None else {"kelpie_arguments": answer.arguments}),
        }
    return {"type": "tool", **_return_document(answer, at)}
