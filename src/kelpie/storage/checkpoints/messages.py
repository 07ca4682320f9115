"""Messages of a checkpoint, checked part by part: a history with an unreadable part would break its agent."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from kelpie.core.conversations.messages import Awaits, Role
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import AgentId, ConversationId, MessageId
from kelpie.storage.checkpoints.rows import columns_of, identifier, row
from kelpie.storage.conversations.message_rows import message_from_json, to_row
from kelpie.storage.tables import messages

COLUMNS = columns_of(messages, "agent_id", "checksum")

_Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _maybe(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _each(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, cast("list[Any]", value)))


def _shape(needed: Mapping[str, _Check], further: Mapping[str, _Check] | None = None) -> _Check:
    """A check for an object with these required members and those optional ones."""
    known = {**needed, **(further or {})}

    def check(value: Any) -> bool:
        given = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        return (
            given is not None
            and set(needed) <= set(given) <= set(known)
            and all(known[name](each) for name, each in given.items())
        )

    return check


_PARTS = {
    "text": _shape({"type": _text, "text": _text}),
    "image": _shape({"type": _text, "source": _object}),
    "reasoning": _shape({"type": _text, "text": _text, "native": _flag, "signature": _maybe(_text)}),
    "hidden_reasoning": _shape({"type": _text, "data": _maybe(_text)}),
}


def _part(value: Any) -> bool:
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _PARTS and _PARTS[kind](value)


_LINES = _maybe(_each(_text))
_RETURN = {"call_id": _text, "name": _text, "ok": _flag, "text": _text, "stdout": _LINES, "stderr": _LINES}
_SELDOM: dict[str, _Check] = {"untried": _flag, "ran_with": _text, "content": _each(_part)}
_QUESTION = _shape({"message": _text, "schema": _maybe(_object), "url": _maybe(_text)})
_QUESTIONS = _shape(
    {
        "server": _text,
        "questions": lambda value: _object(value) and all(_QUESTION(each) for each in value.values()),
        "answers": lambda value: _object(value) and all(_object(each) for each in value.values()),
        "state": _maybe(_text),
        "rounds": lambda value: isinstance(value, int),
    }
)
_CALL = _shape(
    {"id": _text, "name": _text, "arguments": _text},
    {"awaits": lambda value: value in list(Awaits), "questions": _QUESTIONS},
)
_RULING = _shape(
    {"type": _text, "call_id": _text, "approve": _flag, "reason": _maybe(_text), "arguments": _maybe(_text)}
)
_ANSWERED = _shape({"type": _text, **_RETURN}, _SELDOM)


def _answer(value: Any) -> bool:
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    return _ANSWERED(value) if kind == "return" else kind == "ruling" and _RULING(value)


ANSWERS = _each(_answer)
_FIELDS: dict[str, _Check] = {
    "content": _each(_part),
    "tool_calls": _each(_CALL),
    "tool_returns": _each(_shape(_RETURN, _SELDOM)),
    "answers": _maybe(ANSWERS),
    "role": lambda value: value in list(Role),
}


def read(data: Any, agent_id: AgentId, where: str) -> dict[str, Any]:
    """The row of a message of this agent. Raises InvalidInput."""
    values = row(messages, data, where, COLUMNS)
    identifier(MessageId, values["id"], f"{where}.id")
    if values["conversation_id"] is not None:
        identifier(ConversationId, values["conversation_id"], f"{where}.conversation_id")
    for name, check in _FIELDS.items():
        if not check(values[name]):
            raise InvalidInput(f"{where}.{name}", "is not allowed in a message")
    if values["seq"] < 1:
        raise InvalidInput(f"{where}.seq", "must be at least 1")
    whole = {**values, "agent_id": agent_id}
    return to_row(message_from_json(whole), values["seq"])
