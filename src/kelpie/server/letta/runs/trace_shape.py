"""A step's trace as Letta's clients see it: the provider's own JSON where it is whole, else the part that is stored."""

from typing import Any

import orjson

from kelpie.agent.resources.runs import Traced
from kelpie.core.ids import OrganizationId, TraceId
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.shape import llm_config
from kelpie.server.letta.messages.shape import messages
from kelpie.server.letta.models.shape import ModelFacts
from kelpie.server.letta.runs.shape import run_usage


def trace_shape(traced: Traced, facts: ModelFacts | None, organization: OrganizationId) -> dict[str, Any]:
    trace, step, agent = traced.trace, traced.step, traced.agent
    same = agent.model.handle == step.model_handle  # else the agent has another model by now
    return {
        "created_by_id": None,
        "last_updated_by_id": None,
        "created_at": timestamp(trace.created_at),
        "updated_at": timestamp(trace.created_at),
        "id": f"{TraceId.prefix}-{step.id.uuid}",
        "request_json": _document(trace.request, trace.request_bytes),
        "response_json": _streamed(traced)
        if trace.response is None
        else _document(trace.response, trace.response_bytes),
        "step_id": step.id,
        "agent_id": step.agent_id,
        "agent_tags": list(agent.tags),
        "call_type": "agent_step",
        "run_id": step.run_id,
        "source": None,
        "org_id": organization,
        "user_id": None,
        "compaction_settings": None,
        "llm_config": llm_config(agent, facts) if same else None,
        "latency_ms": None if step.llm_ns is None else step.llm_ns // 1_000_000,
        "billing_context": None,
    }


def _document(kept: bytes, size: int) -> dict[str, Any]:
    """The JSON object, or the beginning of its text when it was longer than the stored part."""
    if size > len(kept):
        return {"cut_off": True, "bytes": size, "beginning": kept.decode("utf-8", "ignore")}
    try:
        document = orjson.loads(kept)
    except orjson.JSONDecodeError:
        return {"text": kept.decode("utf-8", "replace")}
    return document if isinstance(document, dict) else {"data": document}


def _streamed(traced: Traced) -> dict[str, Any]:
    """The joined pieces of a stream."""
    replies = [row for row in traced.messages if row.tool_returns == () and row.role == "assistant"]
    return {"streamed": True, "messages": messages(replies), "usage": run_usage(traced.step.usage)}
