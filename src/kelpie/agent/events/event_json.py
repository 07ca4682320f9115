"""Stored form of the events of background runs: JSON and back. Rows in this form are kept for hours.

A new kind of event needs a line here, or a background run cannot store it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.agent.events.turn_events import (
    AnswerDelta,
    CallDelta,
    Compacting,
    MessageCommitted,
    StepAbandoned,
    StreamCut,
    ThoughtDelta,
    ToolProgress,
    TurnEnded,
    TurnEvent,
)
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Run, StopReason
from kelpie.core.errors import InvariantBroken, KelpieError, ModelError, ModelFault, StorageError, TurnBroken
from kelpie.core.ids import MessageId, RunId, StepId
from kelpie.core.permissions.budgets import BUDGET_KEY
from kelpie.storage.conversations.message_rows import message_from_json, message_to_json
from kelpie.storage.runs.steps import usage_to_json

_FAULTS = frozenset(ModelFault)


def to_json(event: TurnEvent) -> dict[str, Any]:
    """Raises InvariantBroken for an event that only live clients get."""
    match event:
        case AnswerDelta():
            return {"kind": "answer", **_place(event), "text": event.text}
        case ThoughtDelta():
            thought = {"text": event.text, "native": event.native, "hidden": event.hidden}
            return {"kind": "thought", **_place(event), **thought}
        case CallDelta():
            call = {"call_id": event.call_id, "name": event.name, "arguments": event.arguments}
            return {"kind": "call", **_place(event), **call, **({"awaits": True} if event.awaits else {})}
        case MessageCommitted():
            return {"kind": "message", "row": message_to_json(event.message), "previewed": event.previewed}
        case StepAbandoned():
            return {"kind": "abandoned", "message_id": event.message_id, "step_id": event.step_id, "at": event.at}
        case Compacting():
            facts = {"trigger": event.trigger, "tokens": event.tokens, "window": event.window}
            head = {"run_id": event.run_id, "event_id": event.event_id, "at": event.at, "step_id": event.step_id}
            return {"kind": "compacting", **head, **facts}
        case ToolProgress():
            facts = {"call_id": event.call_id, "name": event.name, "done": event.done, "total": event.total}
            head = {"run_id": event.run_id, "step_id": event.step_id, "at": event.at}
            return {"kind": "progress", **head, **facts, "message": event.message}
        case StreamCut():
            return {"kind": "cut", "run_id": event.run_id}
        case _:
            raise InvariantBroken(f"{type(event).__name__} cannot be stored")


def ended_to_json(run: Run, context_tokens: int | None, begun: Sequence[RunId] = ()) -> dict[str, Any]:
    """The end of a run, from what is recorded of it: the last event of its stream."""
    return {
        "kind": "ended",
        "run_id": run.id,
        "stop_reason": run.stop_reason,
        "usage": usage_to_json(run.usage),
        "step_count": run.step_count,
        "context_tokens": context_tokens,
        "error": run.metadata.get("error"),
        "detail": run.stop_detail,
        "run_ids": list(begun),
        "budget": run.metadata.get(BUDGET_KEY),
    }


def from_json(data: Mapping[str, Any]) -> TurnEvent:
    """Raises InvariantBroken for what no version of this code has written."""
    match data["kind"]:
        case "answer":
            return AnswerDelta(*_placed(data), data["text"])
        case "thought":
            return ThoughtDelta(*_placed(data), data["text"], data["native"], data.get("hidden", False))
        case "call":
            return CallDelta(
                *_placed(data), data["call_id"], data["name"], data["arguments"], data.get("awaits", False)
            )
        case "message":
            return MessageCommitted(message_from_json(data["row"]), data["previewed"])
        case "abandoned":
            return StepAbandoned(MessageId(data["message_id"]), StepId(data["step_id"]), data["at"])
        case "compacting":
            return _compacting(data)
        case "progress":
            return ToolProgress(
                RunId(data["run_id"]),
                StepId(data["step_id"]),
                data["at"],
                data["call_id"],
                data["name"],
                data["done"],
                data["total"],
                data["message"],
            )
        case "cut":
            return StreamCut(RunId(data["run_id"]))
        case "ended":
            return _ended(data)
        case other:
            raise InvariantBroken(f"a stored event is of the unknown kind '{other}'")


def is_preview(data: Mapping[str, Any]) -> bool:
    """True if a stored event is a piece of a message that may never have been committed."""
    return data["kind"] in ("answer", "thought", "call")


def _place(event: AnswerDelta | ThoughtDelta | CallDelta) -> dict[str, Any]:
    return {"message_id": event.message_id, "step_id": event.step_id, "at": event.at, "part": event.part}


def _placed(data: Mapping[str, Any]) -> tuple[MessageId, StepId, int, int]:
    return MessageId(data["message_id"]), StepId(data["step_id"]), data["at"], data["part"]


def _ended(data: Mapping[str, Any]) -> TurnEnded:
    return TurnEnded(
        RunId(data["run_id"]),
        StopReason(data["stop_reason"]),
        Usage(**data["usage"]),
        data["step_count"],
        data["context_tokens"],
        recorded_error(data["error"]) if data["error"] is not None else None,
        data["detail"],
        tuple(RunId(run_id) for run_id in data.get("run_ids", ())),
        data.get("budget"),
    )


def _compacting(data: Mapping[str, Any]) -> Compacting:
    step_id = StepId(data["step_id"]) if data["step_id"] else None
    facts = (data["trigger"], data["tokens"], data["window"])
    return Compacting(RunId(data["run_id"]), data["event_id"], data["at"], step_id, *facts)


def recorded_error(told: Mapping[str, Any]) -> KelpieError:
    """The recorded failure of a run, as the error that it was."""
    kind, message = str(told["type"]), str(told["message"])
    if kind in _FAULTS:
        return ModelError(ModelFault(kind), message, detail=told.get("detail"), hint=told.get("hint"))
    if kind == "storage":
        return StorageError(message)
    return InvariantBroken(message) if kind == "internal_error" else TurnBroken(message)
