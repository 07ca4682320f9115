"""Batches and the outcomes of their items as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.batches.batches import ItemResult
from kelpie.batches.runner import CANCELLED, PARALLEL
from kelpie.core.conversations.batches import BatchProgress
from kelpie.core.conversations.jobs import Job
from kelpie.core.conversations.messages import Message, Role
from kelpie.server.http.times import timestamp
from kelpie.server.letta.messages.shape import View, wire_messages
from kelpie.server.letta.messages.stream_shape import stop_shape, usage_shape


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
    shown["messages"] = [one for row in result.messages or () if not _put_in(row) for one in wire_messages(row, view)]
    shown["usage"] = usage_shape(run.usage, run.step_count, None, (run.id,))
    if run.stop_reason is not None:
        shown["stop_reason"] = stop_shape(run.stop_reason.value, run.stop_detail)
    return shown


def _put_in(row: Message) -> bool:
    """True for the input, which is no part of an answer."""
    return row.otid is not None and row.role is not Role.summary


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
