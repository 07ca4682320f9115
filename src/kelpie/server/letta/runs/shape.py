"""Runs and steps as Letta's clients see them."""

from collections.abc import Sequence
from typing import Any

from kelpie.agent.events.event_json import recorded_error
from kelpie.core.conversations.messages import Usage
from kelpie.core.conversations.runs import Run, Step
from kelpie.core.ids import OrganizationId
from kelpie.server.http.errors import refusal
from kelpie.server.http.times import timestamp


def run_shape(run: Run) -> dict[str, Any]:
    detail = {} if run.stop_detail is None else {"kelpie_stop_reason": run.stop_detail}
    return {
        "id": run.id,
        "status": run.status,
        "created_at": timestamp(run.created_at),
        "completed_at": timestamp(run.completed_at),
        "agent_id": run.agent_id,
        "conversation_id": run.conversation_id,
        "base_template_id": None,
        "background": run.background,
        "metadata": _metadata(run),
        "request_config": dict(run.request_config) or None,
        "stop_reason": run.stop_reason,
        "callback_url": run.callback_url,
        "callback_sent_at": timestamp(run.callback_sent_at),
        "callback_status_code": run.callback_status_code,
        "callback_error": run.callback_error,
        "ttft_ns": run.ttft_ns,
        "total_duration_ns": run.total_duration_ns,
        **detail,
        # Kelpie's own: dollars, null when the price of a model is not known.
        "kelpie_cost_usd": run.usage.cost_usd,
    }


def _metadata(run: Run) -> dict[str, Any]:
    """What is recorded of the run; a failure also has the fields of its error frame, by which clients decide whether
    to try again."""
    told = run.metadata.get("error")
    if told is None:
        return dict(run.metadata)
    frame = {"message_type": "error_message", "run_id": run.id, "error_type": refusal(recorded_error(told)).type}
    return {**run.metadata, "error": {**frame, **told}}


def run_metrics(run: Run, tools_used: Sequence[str], organization: OrganizationId) -> dict[str, Any]:
    return {
        "id": run.id,
        "organization_id": organization,
        "agent_id": run.agent_id,
        "project_id": None,
        "run_start_ns": run.created_at * 1000,
        "run_ns": run.total_duration_ns,
        "num_steps": run.step_count,
        "tools_used": list(tools_used) or None,
        "template_id": None,
        "base_template_id": None,
    }


def run_usage(usage: Usage) -> dict[str, Any]:
    return {
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        **_details(usage),
        "kelpie_cost_usd": usage.cost_usd,
    }


def _details(usage: Usage) -> dict[str, Any]:
    """Null where no provider has counted them."""
    read, written, thought = usage.cached_input_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    prompt = {"cached_tokens": read, "cache_read_tokens": read, "cache_creation_tokens": written}
    return {
        "prompt_tokens_details": None if read is None and written is None else prompt,
        "completion_tokens_details": None if thought is None else {"reasoning_tokens": thought},
    }


def step_shape(step: Step, organization: OrganizationId) -> dict[str, Any]:
    usage = step.usage
    return {
        "id": step.id,
        "origin": None,
        "organization_id": organization,
        "provider_id": None,
        "run_id": step.run_id,
        "agent_id": step.agent_id,
        "provider_name": step.provider_name,
        "provider_category": step.provider_category,
        "model": step.model,
        "model_handle": step.model_handle,
        "model_endpoint": step.model_endpoint,
        "context_window_limit": step.context_window_limit,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens or 0,
            "cache_read_tokens": usage.cached_input_tokens or 0,
            "cache_creation_tokens": usage.cache_write_tokens or 0,
        },
        "stop_reason": step.stop_reason,
        "tags": list(step.tags),
        "tid": step.transaction_id,
        "trace_id": None,
        "request_id": None,
        "messages": [],
        "feedback": step.feedback,
        "project_id": step.project_id,
        "error_type": step.error.get("type") if step.error else None,
        "error_data": dict(step.error) if step.error else None,
        "status": step.status,
        "kelpie_created_at": timestamp(step.created_at),
        "kelpie_cost_usd": usage.cost_usd,
    }


def step_metrics(step: Step, organization: OrganizationId) -> dict[str, Any]:
    return {
        "id": step.id,
        "organization_id": organization,
        "provider_id": None,
        "run_id": step.run_id,
        "agent_id": step.agent_id,
        "step_start_ns": None,
        "llm_request_start_ns": None,
        "llm_request_ns": step.llm_ns,
        "tool_execution_ns": step.tool_ns,
        "step_ns": step.step_ns,
        "base_template_id": None,
        "template_id": None,
        "project_id": step.project_id,
        # Kelpie's own: the times that a local server reports.
        "model_load_ns": step.usage.load_ns,
        "model_inference_ns": step.usage.inference_ns,
    }


def run_spans(run: Run, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """A run and its steps as spans, from the records: a step ends when it is committed."""
    ended = run.completed_at if run.completed_at is not None else run.created_at
    whole = _span(run, run.id, None, "run", run.created_at * 1000, ended * 1000)
    whole["attributes"] |= {"status": run.status, "stop_reason": run.stop_reason, "step_count": run.step_count}
    return [whole, *(_step_span(run, step) for step in steps)]


def _step_span(run: Run, step: Step) -> dict[str, Any]:
    end = step.created_at * 1000
    span = _span(run, step.id, run.id, "step", end - (step.step_ns or 0), end)
    span["attributes"] |= {
        "status": step.status,
        "model_handle": step.model_handle,
        "llm_request_ns": step.llm_ns,
        "tool_execution_ns": step.tool_ns,
        "total_tokens": step.usage.total_tokens,
        "error": dict(step.error) if step.error else None,
    }
    return span


def _span(run: Run, span_id: str, parent: str | None, name: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    return {
        "trace_id": run.id,
        "span_id": span_id,
        "parent_span_id": parent,
        "name": name,
        "start_time_ns": start_ns,
        "end_time_ns": max(start_ns, end_ns),
        "duration_ns": max(0, end_ns - start_ns),
        "attributes": {"agent_id": run.agent_id},
    }
