"""Runs and steps: the record of a turn. A run is one turn; a step is one model call with its tool calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from kelpie.core.conversations.messages import Usage
from kelpie.core.errors import InvariantBroken
from kelpie.core.ids import AgentId, ConversationId, RunId, StepId
from kelpie.core.paging import Page
from kelpie.core.time import Micros

MAX_STEPS_DEFAULT = 50  # model calls of one turn


class StopReason(StrEnum):
    end_turn = "end_turn"
    error = "error"
    llm_api_error = "llm_api_error"
    invalid_llm_response = "invalid_llm_response"
    invalid_tool_call = "invalid_tool_call"
    max_steps = "max_steps"
    max_tokens_exceeded = "max_tokens_exceeded"
    no_tool_call = "no_tool_call"
    tool_rule = "tool_rule"
    cancelled = "cancelled"
    insufficient_credits = "insufficient_credits"
    requires_approval = "requires_approval"
    context_window_overflow_in_system_prompt = "context_window_overflow_in_system_prompt"


class RunStatus(StrEnum):
    created = "created"
    running = "running"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


RUN_MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.created: frozenset({RunStatus.running, RunStatus.failed, RunStatus.cancelled}),
    RunStatus.running: frozenset({RunStatus.completed, RunStatus.failed, RunStatus.cancelled}),
    RunStatus.completed: frozenset(),
    RunStatus.failed: frozenset(),
    RunStatus.cancelled: frozenset(),
}
UNFINISHED = (RunStatus.created, RunStatus.running)

_COMPLETED = frozenset({StopReason.end_turn, StopReason.max_steps, StopReason.tool_rule, StopReason.requires_approval})


def status_for(reason: StopReason) -> RunStatus:
    """The status of a run that stopped for this reason."""
    if reason in _COMPLETED:
        return RunStatus.completed
    return RunStatus.cancelled if reason is StopReason.cancelled else RunStatus.failed


def check_run_move(before: RunStatus, after: RunStatus) -> None:
    """Raises InvariantBroken for a move that is not in RUN_MOVES."""
    if after not in RUN_MOVES[before]:
        raise InvariantBroken(f"illegal move of a run: {before} -> {after}")


@dataclass(frozen=True, slots=True)
class Run:
    id: RunId
    agent_id: AgentId
    status: RunStatus
    created_at: Micros
    completed_at: Micros | None = None
    conversation_id: ConversationId | None = None
    background: bool = False
    stop_reason: StopReason | None = None
    stop_detail: str | None = None  # Kelpie's own reason, where `stop_reason` has no word for it
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    request_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    callback_url: str | None = None
    callback_sent_at: Micros | None = None
    callback_status_code: int | None = None
    callback_error: str | None = None
    ttft_ns: int | None = None
    total_duration_ns: int | None = None
    usage: Usage = field(default_factory=Usage)
    step_count: int = 0


class StepStatus(StrEnum):
    pending = "pending"
    success = "success"
    failed = "failed"
    cancelled = "cancelled"


@dataclass(frozen=True, slots=True)
class Step:
    id: StepId
    run_id: RunId
    agent_id: AgentId
    created_at: Micros
    status: StepStatus
    stop_reason: StopReason | None = None
    provider_name: str | None = None
    provider_category: str | None = "base"
    model: str | None = None
    model_handle: str | None = None
    model_endpoint: str | None = None
    context_window_limit: int | None = None
    usage: Usage = field(default_factory=Usage)
    tags: tuple[str, ...] = ()
    feedback: str | None = None
    transaction_id: str | None = None
    project_id: str | None = None
    error: Mapping[str, Any] | None = None
    llm_ns: int | None = None
    tool_ns: int | None = None
    step_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The request of one step to the provider and its response, as bytes, cut at the size limit.

    A streamed response is not stored here: its content is in the step's messages.
    """

    step_id: StepId
    created_at: Micros
    request: bytes
    request_bytes: int  # before the cut
    response: bytes | None
    response_bytes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number to compare a value with; the value decides which operators exist."""

    operator: Literal["eq", "gt", "gte", "lt", "lte"]
    value: int


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Filter for a list of runs. `statuses` takes precedence over `active`. `duration_percentile` keeps the slowest: of
    all other matches, the runs that took at least as long as that share of them."""

    page: Page = Page(limit=100)
    run_id: RunId | None = None
    agent_ids: tuple[AgentId, ...] = ()
    statuses: tuple[RunStatus, ...] = ()
    background: bool | None = None
    stop_reason: StopReason | None = None
    conversation_id: str | None = None  # None = all, "default" = outside of conversations
    active: bool = False
    tools_used: tuple[str, ...] = ()  # ids; one of them is enough
    project_id: str | None = None
    template_family: str | None = None
    step_count: Comparison | None = None  # eq, gte, lte
    duration_ns: Comparison | None = None  # eq, gt, lt
    duration_percentile: int | None = None
    created_from: Micros | None = None
    created_to: Micros | None = None
    cost_micros_min: int | None = None  # millionths of a dollar, of the calls whose price is known
    recovered: bool | None = None  # True: only runs that were resumed after a server had stopped
    idle_since: Micros | None = None  # only unfinished runs that have committed nothing since then


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One commit of a turn: `open`, `step`, `compact` and others."""

    number: int
    kind: str
    at: Micros


@dataclass(frozen=True, slots=True)
class StepQuery:
    """Filter for a list of steps."""

    page: Page = Page()
    agent_id: AgentId | None = None
    run_id: RunId | None = None
    model: str | None = None
    feedback: str | None = None
    has_feedback: bool | None = None
    tags: tuple[str, ...] = ()  # one of them is enough
    project_id: str | None = None
    created_from: Micros | None = None
    created_to: Micros | None = None
