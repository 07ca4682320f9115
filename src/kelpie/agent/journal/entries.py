"""An entry of the journal, before and after its commit: what a step writes, and what came of it.

All ids and times are drawn when an entry is made, so that committing it is pure and may be done twice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.events.event_recorder import EventRecord
from kelpie.agent.tool_calls.call_plan import PlannedCall
from kelpie.agent.tool_calls.tool_rules import Made
from kelpie.agent.tool_calls.turn_end import CallSummary
from kelpie.core.conversations.agent_chain import UNCHAINED, AgentChain
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, ToolCall, ToolReturn
from kelpie.core.conversations.runs import Run, Step, StopReason
from kelpie.core.ids import AgentId, MessageId, StepId
from kelpie.core.memory.blocks import DEFAULT_RULES, BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.permissions.call_records import NO_TIME, CallRecord, ResourceUse
from kelpie.core.time import Micros
from kelpie.storage.runs.traces import NewTrace


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A call to be answered in a commit: inside it, or with what it gave back outside."""

    planned: PlannedCall
    uuid: str  # for a row the call may make
    done: ToolReturn | None = None
    took: ResourceUse = NO_TIME  # outside


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """What decides whether the turn goes on; known with the last commit of a step."""

    calls: tuple[CallSummary, ...]
    finish_reason: str
    steps_left: int
    made: tuple[Made, ...] = ()  # the calls of the turn before those that this commit answers
    paused: bool = False  # the agent rests and is not sent on by heartbeats
    more: bool = False  # something was said after the answers to these calls, and wants an answer itself
    client: tuple[str, ...] = ()  # the tools that the client runs
    barred: frozenset[str] = frozenset()  # the tools that the agent may not use, which no rule can ask for


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One commit within a step. All ids and times are drawn beforehand, so that the commit is pure."""

    kind: str
    at: Micros
    step_id: StepId
    tool_row_id: MessageId
    nudge_id: MessageId
    rows: tuple[Message, ...] = ()  # what is known already: the input, the reply
    step: Step | None = None
    answers: tuple[CallAnswer, ...] = ()
    left: tuple[ToolCall, ...] = ()  # the calls of the reply that come after those
    ending: TurnEnding | None = None
    trace: NewTrace | None = None  # of the model call that the step is about
    block_rules: BlockRules = DEFAULT_RULES  # for the calls
    working_memory: WorkingMemoryLimits = WorkingMemoryLimits()  # how much the calls may put there
    cancelled: bool = False  # the turn was cancelled while what this records was done: it ends here
    chain: AgentChain = UNCHAINED  # of agents behind the turn
    group_id: str | None = None  # the group that the turn speaks in
    previewed: bool = False  # the reply went out as deltas
    record: EventRecord | None = None  # of a background run: what its stream has to keep with this commit
    waited: PendingCalls | None = None  # what the conversation has waited for until now
    waits: PendingCalls | None = None  # and what it waits for when this is committed, which ends the turn
    ticks: Callable[[], int] = lambda: 0  # a stopwatch for the calls


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit wrote, and how agent and turn stand after it."""

    rows: tuple[Message, ...]
    run: Run
    loaded: AgentSnapshot
    stop: StopReason | None
    touched: tuple[AgentId, ...] = ()
    cleared: bool = False  # the turn is over and has left what the model sees of the conversation
    begun: tuple[Run, ...] = ()  # runs of other agents that the commit wrote down
    waits: PendingCalls | None = None
    calls: tuple[CallRecord, ...] | None = ()  # that it answered; None when that is not known
