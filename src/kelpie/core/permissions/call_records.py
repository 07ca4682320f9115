"""The record of tool calls: the caller, the tool, the outcome, and the resources used."""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.ids import AgentId, OrganizationId, RunId, StepId
from kelpie.core.permissions.quotas import QuotaUse
from kelpie.core.permissions.tool_permissions import ToolKind
from kelpie.core.time import Micros


class CallOutcome(StrEnum):
    success = "success"
    error = "error"  # it was run, and failed
    refused = "refused"  # permissions or limits did not let it run
    denied = "denied"  # a person did not let it run
    invalid = "invalid"  # no such tool, arguments that do not fit, a tool rule against it
    interrupted = "interrupted"  # the server stopped, or the turn was cancelled, while it ran or before


RAN = (CallOutcome.success, CallOutcome.error, CallOutcome.interrupted)


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources that a call used. Processor time and memory are those of its sandbox, 0 where it needed none."""

    duration_us: int = 0
    cpu_us: int = 0
    memory_peak_bytes: int = 0


NO_TIME = ResourceUse()


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. Without an agent, a client made it directly; `counted` calls use up an agent's hourly quota."""

    organization_id: OrganizationId
    name: str
    kind: ToolKind | None  # None: no such tool was known
    outcome: CallOutcome
    created_at: Micros
    agent_id: AgentId | None = None
    run_id: RunId | None = None
    step_id: StepId | None = None
    call_id: str | None = None
    tool_id: str | None = None
    took: ResourceUse = NO_TIME
    counted: bool = False
    reason: str | None = None  # why it was refused
    number: int = 0  # given by the database; later calls have higher ones

    @property
    def used(self) -> QuotaUse:
        return QuotaUse(int(self.counted), self.took.cpu_us, self.took.memory_peak_bytes)


@dataclass(frozen=True, slots=True)
class CallQuery:
    """Filter for a list of calls, the newest first. `before` is the number of a call, for the next page."""

    limit: int = 50
    before: int | None = None
    name: str | None = None
    outcome: CallOutcome | None = None
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """Use of one tool since some moment."""

    name: str
    kind: ToolKind | None
    calls: int
    errors: int
    refused: int
    duration_us: int  # of all calls together
    duration_us_max: int
    cpu_us: int
    memory_peak_bytes: int
    last_at: Micros
