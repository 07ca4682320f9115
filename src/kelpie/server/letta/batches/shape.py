"""Batches and the outcomes of their items as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.batches.batches import ItemExcerpt, ItemResult, is_input
from kelpie.batches.runner import CANCELLED, PARALLEL
from kelpie.core.conversations.batches import BatchProgress
from kelpie.core.conversations.jobs import Job
from kelpie.server.http.times import timestamp
from kelpie.server.letta.messages.shape import View, wire_messages
from kelpie.server.letta.messages.stream_shape import stop_shape, usage_shape

EXCERPT_CHARS = 2000


def batch_shape(job: Job, done: BatchProgress) -> dict[str, Any]:
    """A batch without its results."""
    return {
        "batch_id": job.id,
        "agent_id": job.agent_id,
        "status": job.status.value,
        "parallel": bool(job.metadata.get(PARALLEL)),
        "cancel_requested": bool(job.metadata.get(CANCELLED)),
        "percentage": done.percentage,
        "total": done.total,
        "completed": done.completed,
        "failed": done.failed,
        "cancelled": done.cancelled,
        "callback_url": job.callback_url,
        "created_at": timestamp(job.created_at),
        "completed_at": timestamp(job.completed_at),
    }


def whole_batch(job: Job, done: BatchProgress, results: Sequence[ItemResult]) -> dict[str, Any]:
    return batch_shape(job, done) | {"results": [_result(each) for each in results]}


def _result(result: ItemResult) -> dict[str, Any]:
    item, run = result.item, result.run
    shown: dict[str, Any] = {
        "index": item.place,
        "status": item.status.value,
        "agent_id": item.agent_id,
        "conversation_id": item.conversation_id,
        "run_id": item.run_id,
        "messages": [],
        "stop_reason": None,
        "usage": None,
        "error": item.error,
    }
    if run is None:
        return shown
    if result.messages is None:
        shown["messages_left_out"] = True  # the answer would be too large; the messages of the run can be listed
    view = _view(run.request_config)
    shown["messages"] = [one for row in result.messages or () if not is_input(row) for one in wire_messages(row, view)]
    shown["usage"] = usage_shape(run.usage, run.step_count, None, (run.id,))
    if run.stop_reason is not None:
        shown["stop_reason"] = stop_shape(run.stop_reason.value, run.stop_detail)
    return shown


def excerpt_shape(found: ItemExcerpt) -> dict[str, Any]:
    """An item with the beginnings of its texts."""
    item = found.item
    wire = [one for row in found.last if not is_input(row) for one in reversed(wire_messages(row, View()))]
    answers = [one for one in wire if one["message_type"] == "assistant_message"]
    return {
        "index": item.place,
        "status": item.status.value,
        "agent_id": item.agent_id,
        "conversation_id": item.conversation_id,
        "run_id": item.run_id,
        "input": found.given[:EXCERPT_CHARS],
        "output": _words(answers[0]["content"])[:EXCERPT_CHARS] if answers else None,
        "error": item.error,
        "updated_at": timestamp(item.updated_at),
    }


def _words(content: Any) -> str:
    """The text of a message, whose content may be a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def _view(config: Mapping[str, Any]) -> View:
    """The format that the client asked for when it sent the item."""
    types = config.get("include_return_message_types")
    return View(
        config.get("use_assistant_message", True),
        config.get("assistant_message_tool_name", "send_message"),
        config.get("assistant_message_tool_kwarg", "message"),
        None if types is None else frozenset(types),
        bool(config.get("include_compaction_messages")),
    )
