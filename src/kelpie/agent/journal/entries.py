"""Entries of the journal: the commits within a step before they are written, and the result of writing one.

All ids and times are drawn when an entry is made, so that committing it is pure and may be done twice. Each kind of
commit has one constructor; nothing else makes an entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.events.event_recorder import EventRecord
from kelpie.agent.events.turn_events import MessageCommitted
from kelpie.agent.tool_calls.call_plan import PlannedCall
from kelpie.agent.tool_calls.tool_rules import Made
from kelpie.agent.tool_calls.turn_end import CallSummary
from kelpie.core.conversations.agent_chain import AgentChain
from kelpie.core.conversations.approvals import PendingCalls
from kelpie.core.conversations.messages import Message, ToolCall, ToolReturn
from kelpie.core.conversations.runs import Run, Step, StopReason, Trace
from kelpie.core.ids import AgentId, MessageId, StepId
from kelpie.core.memory.blocks import BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.permissions.call_records import NO_TIME, CallRecord, ResourceUse
from kelpie.core.time import Micros

StepKind = Literal["step", "reply", "result", "ask", "answers", "recover"]


@dataclass(frozen=True, slots=True)
class CallToAnswer:
    """A call that a commit answers: by running it inside the commit, or with the result that it has already."""

    planned: PlannedCall
    uuid: str  # for a row the call may make
    result: ToolReturn | None = None
    used: ResourceUse = NO_TIME  # outside the commit


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """Facts that decide whether the turn continues; known with the last commit of a step."""

    calls: tuple[CallSummary, ...]
    finish_reason: str
    steps_left: int
    made: tuple[Made, ...]  # the calls of the turn before those that this commit answers
    paused: bool  # the agent is paused: a heartbeat does not make it continue
    more: bool  # messages follow the answers to these calls and need an answer themselves
    client: tuple[str, ...]  # the tools that the client runs
    denied: frozenset[str]  # the tools that the agent may not use, which no rule can ask for


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Record of the model call that a commit is about."""

    step: Step
    trace: Trace | None  # to be written with the step
    previewed: bool  # the reply went out as deltas
    traces_kept: int = 0


@dataclass(frozen=True, slots=True)
class EntryFrame:
    """Ids, time and circumstances that every commit within a step has."""

    at: Micros
    step_id: StepId
    tool_row_id: MessageId
    nudge_id: MessageId
    cancelled: bool  # the turn was asked to end while the work of this commit was done: it ends here
    chain: AgentChain  # of agents behind the turn
    group_id: str | None  # the group that the turn speaks in
    block_rules: BlockRules  # for the calls
    working_memory: WorkingMemoryLimits  # for the calls
    ticks: Callable[[], int]  # a stopwatch for the calls


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One commit within a step."""

    kind: StepKind
    frame: EntryFrame
    rows: tuple[Message, ...] = ()  # known before the commit: the input, the reply, a client's answers
    model: ModelRecord | None = None
    calls: tuple[CallToAnswer, ...] = ()
    left: tuple[ToolCall, ...] = ()  # the calls of the reply that come after those
    ending: TurnEnding | None = None
    waited: PendingCalls | None = None  # what the conversation waited for until this commit
    waits: PendingCalls | None = None  # what it waits for after this commit, which ends the turn
    events: EventRecord | None = None  # of a background run: the events that its stream stores with this commit
    asks: Message | None = None  # a request that follows the results: calls that go on once a person has answered


def reply_entry(frame: EntryFrame, rows: tuple[Message, ...], model: ModelRecord) -> StepEntry:
    """A reply whose calls run outside; their results follow one by one."""
    return StepEntry("reply", frame, rows, model)


def step_entry(
    frame: EntryFrame,
    rows: tuple[Message, ...],
    model: ModelRecord,
    calls: tuple[CallToAnswer, ...],
    ending: TurnEnding,
) -> StepEntry:
    """A whole step: a reply with the results of all its calls."""
    return StepEntry("step", frame, rows, model, calls, ending=ending)


def ask_entry(frame: EntryFrame, rows: tuple[Message, ...], model: ModelRecord, waits: PendingCalls) -> StepEntry:
    """A reply with calls that wait for an approval or for the client; the turn ends."""
    return StepEntry("ask", frame, rows, model, waits=waits)


def result_entry(
    frame: EntryFrame, calls: tuple[CallToAnswer, ...], left: tuple[ToolCall, ...], ending: TurnEnding | None
) -> StepEntry:
    """Results of some calls of a reply; with the last of them the ending."""
    return StepEntry("result", frame, calls=calls, left=left, ending=ending)


def question_entry(
    frame: EntryFrame, calls: tuple[CallToAnswer, ...], ending: TurnEnding, asks: Message, waits: PendingCalls
) -> StepEntry:
    """The last results of a reply, some of which are questions to a person; the turn ends until they are answered."""
    return StepEntry("result", frame, calls=calls, ending=ending, waits=waits, asks=asks)


def partial_answers_entry(
    frame: EntryFrame, rows: tuple[Message, ...], waited: PendingCalls, waits: PendingCalls
) -> StepEntry:
    """Answers to some of the calls that wait; the others wait on, and the turn ends."""
    return StepEntry("answers", frame, rows, waited=waited, waits=waits)


def answers_entry(
    frame: EntryFrame,
    rows: tuple[Message, ...],
    waited: PendingCalls,
    calls: tuple[CallToAnswer, ...],
    ending: TurnEnding | None,
) -> StepEntry:
    """The last answers to calls that waited, with the results that are known with them."""
    return StepEntry("answers", frame, rows, calls=calls, ending=ending, waited=waited)


def recover_entry(frame: EntryFrame, calls: tuple[CallToAnswer, ...], ending: TurnEnding) -> StepEntry:
    """Results of the calls that a crash left open."""
    return StepEntry("recover", frame, calls=calls, ending=ending)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of a commit: the rows it wrote, and the agent and the run after it."""

    rows: tuple[Message, ...]
    run: Run
    loaded: AgentSnapshot
    stop: StopReason | None
    events: tuple[MessageCommitted, ...] = ()
    touched: tuple[AgentId, ...] = ()
    cleared: bool = False  # the turn is over, and its context was cleared or must be read again
    begun: tuple[Run, ...] = ()  # runs of other agents that the commit stored
    waits: PendingCalls | None = None
    calls: tuple[CallRecord, ...] | None = ()  # that it answered; None when that is not known
