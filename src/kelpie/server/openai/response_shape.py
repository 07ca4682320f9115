"""Responses in OpenAI's shape. They are not stored: each is made from its run and messages whenever it is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.agent.client_histories.client_histories import StoredTurn
from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.conversations.runs import Run, RunStatus, StopReason, status_for
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.server.openai.item_shape import output_items

START_S = 60  # how long a turn may take to begin before it counts as failed

_STATUSES = {
    RunStatus.created: "queued",
    RunStatus.running: "in_progress",
    RunStatus.completed: "completed",
    RunStatus.failed: "failed",
    RunStatus.cancelled: "cancelled",
}
_CUT_SHORT = frozenset({StopReason.max_steps, StopReason.max_tokens_exceeded})
NEVER_BEGAN = "The server stopped before the response began; send the request again."


def response_id(turn_id: str) -> str:
    return f"resp_{turn_id}"


def turn_id_of(named: str) -> str:
    return named.removeprefix("resp_")


def usage_shape(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }


def response_shape(
    turn_id: str,
    request: Mapping[str, Any],
    created_at: Micros,
    *,
    status: str,
    rows: Sequence[Message] = (),
    usage: Usage | None = None,
    stop: StopReason | None = None,
    error: Mapping[str, Any] | None = None,
    completed_at: Micros | None = None,
) -> dict[str, Any]:
    """A response. `request` is what was stored of the request."""
    cut = status == "completed" and stop in _CUT_SHORT
    return {
        "id": response_id(turn_id),
        "object": "response",
        "created_at": created_at // MICROS_PER_SECOND,
        "completed_at": None if completed_at is None else completed_at // MICROS_PER_SECOND,
        "status": "incomplete" if cut else status,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output_items(rows),
        "usage": None if usage is None else usage_shape(usage),
        "parallel_tool_calls": True,
        "temperature": None,
        "top_p": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "truncation": "auto",
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        **request,
    }


def ended(stop: StopReason) -> dict[str, Any]:
    """The status of a response whose turn ended for this reason, and what to say about it if it failed."""
    status = _STATUSES[status_for(stop)]
    if stop in _CUT_SHORT:
        status = "completed"
    failed = {"code": "server_error", "message": f"The turn failed: {stop.value}."} if status == "failed" else None
    return {"status": status, "error": failed}


def stored_shape(stored: StoredTurn, now: Micros) -> dict[str, Any]:
    """A stored turn as the response that it is now."""
    turn, run = stored.turn, stored.run
    if run is None:
        late = now - turn.created_at > START_S * MICROS_PER_SECOND
        failed = {"code": "server_error", "message": NEVER_BEGAN} if late else None
        status = "failed" if late else "in_progress"
        return response_shape(turn.id, stored.request, turn.created_at, status=status, error=failed)
    status = _STATUSES[run.status]
    if run.stop_reason in _CUT_SHORT and not run.metadata.get("error"):
        status = "completed"  # as it was told, but for being cut short
    return response_shape(
        turn.id,
        stored.request,
        turn.created_at,
        status=status,
        rows=stored.rows,
        usage=run.usage if run.completed_at is not None else None,
        stop=run.stop_reason,
        error=_error(run) if status == "failed" else None,
        completed_at=run.completed_at,
    )


def _error(run: Run) -> dict[str, Any]:
    told: Any = run.metadata.get("error")
    text = told.get("message") or told.get("detail") if isinstance(told, Mapping) else told
    if not isinstance(text, str) or not text:
        text = f"The turn failed: {run.stop_reason.value if run.stop_reason else 'unknown reason'}."
    return {"code": "server_error", "message": text}
