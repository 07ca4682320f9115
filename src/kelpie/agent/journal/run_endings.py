"""End of a run: recorded on the run, its agent, its stream and its conversation, in one commit.

A run outside any turn (a model was asked for another purpose) is stored with its end at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kelpie.agent.definition import loaded_agent
from kelpie.agent.definition.loaded_agent import AgentSnapshot
from kelpie.agent.events import event_recorder
from kelpie.agent.events.event_recorder import EventRecord
from kelpie.agent.events.turn_events import MessageCommitted, TurnEvent
from kelpie.agent.journal import commits as journal
from kelpie.agent.journal.commits import JournalPosition
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message, Role
from kelpie.core.conversations.runs import Run, RunStatus, Step, StopReason, status_for
from kelpie.core.ids import AgentId, OrganizationId, RunId
from kelpie.core.permissions.call_records import CallOutcome, CallRecord, ResourceUse
from kelpie.core.time import Micros
from kelpie.sandbox.port import UsageMeter
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.conversations import contexts, conversations, messages
from kelpie.storage.runs import runs, steps, tool_calls
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Database, Tx

NO_METERS: Mapping[str, UsageMeter] = MappingProxyType({})
_UNKNOWN = UsageMeter()


async def close_turn(
    database: Database,
    position: JournalPosition,
    run: Run,
    orphans: Sequence[Message],
    step: Step | None,
    loaded: AgentSnapshot,
    record: EventRecord | None = None,
    meters: Mapping[str, UsageMeter] = NO_METERS,
) -> tuple[bool, Sequence[Message]]:
    """Ends a run that did not get to its end by itself, and answers any call it left open. Raises StorageError.

    `meters` are those of such calls that were interrupted. Returns whether the context must be read again, and which
    of the answers are in the history now.
    """
    assert run.completed_at is not None
    at = run.completed_at

    def body(tx: Tx) -> tuple[bool, Sequence[Message]]:
        kept = orphans if messages.has_run(tx, run.id) else ()  # else the calls are gone, and no results are needed
        messages.append(tx, kept, None if is_gone(tx, run) else position.conversation)
        tool_calls.add(tx, orphan_records(loaded.agent.organization_id, run, kept, at, meters))
        if step is not None:
            steps.add(tx, step, loaded.agent.organization_id)
        events = [MessageCommitted(row) for row in kept]
        return finish(tx, run, loaded_agent.refresh(tx, loaded).agent, position.conversation, record, events), kept

    return await journal.commit(database, position, "close", at, body, lambda tx: (True, orphans))


def ended(run: Run, reason: StopReason, at: Micros) -> Run:
    """The run as it is once it has stopped."""
    return replace(
        run,
        status=status_for(reason),
        stop_reason=reason,
        completed_at=at,
        total_duration_ns=max(0, at - run.created_at) * 1000,
    )


def finish(
    tx: Tx,
    run: Run,
    agent: Agent,
    conversation: str,
    record: EventRecord | None = None,
    events: Sequence[TurnEvent] = (),
    begun: Sequence[RunId] = (),
) -> bool:
    """Records an ended run, on itself and on its agent; clears the context if the agent is set so, then returns True.

    The stream of a background run gets its end here: the events of its last commit, and why it stopped.
    A turn that waits for an approval is not over: its context stays until it is.
    """
    assert run.stop_reason is not None and run.completed_at is not None
    runs.finish(tx, run)
    if run.background:
        event_recorder.keep_end(tx, run, record, events, begun)
    duration_ms = (run.total_duration_ns or 0) // 1_000_000
    agents.record_run(tx, run.agent_id, run.completed_at, duration_ms, run.stop_reason)
    if conversation:
        conversations.record_run(tx, conversation, run.completed_at)
    clears = agent.message_buffer_autoclear and run.stop_reason is not StopReason.requires_approval
    if clears:
        _clear_context(tx, agent.id, conversation)
    return clears


def finish_waiting(tx: Tx, run: Run) -> None:
    """Records the end of a run that never began: nothing of the agent has changed by it."""
    runs.finish(tx, run)
    if run.background:
        event_recorder.keep_end(tx, run, None, ())


def _clear_context(tx: Tx, agent_id: AgentId, conversation: str) -> None:
    """Leaves the model the system message and nothing else; the history keeps everything."""
    first = messages.get_many(tx, contexts.ids(tx, agent_id, conversation)[:1])
    kept = [message.id for message in first if message.role is Role.system]
    contexts.replace(tx, agent_id, kept, conversation)


def is_gone(tx: Tx, run: Run) -> bool:
    """True if the conversation that a turn runs in was deleted; the default one goes with its agent only."""
    return run.conversation_id is not None and not conversations.is_live(tx, run.conversation_id)


def orphan_records(
    organization: OrganizationId,
    run: Run,
    rows: Sequence[Message],
    at: Micros,
    meters: Mapping[str, UsageMeter] = NO_METERS,
) -> list[CallRecord]:
    """The records of calls that only the end of their turn answered, with what they had used. One may have ended just
    before the turn did."""

    def used(call_id: str) -> ResourceUse:
        meter = meters.get(call_id, _UNKNOWN)
        return ResourceUse(0, meter.cpu_us, meter.memory_peak_bytes)

    return [
        CallRecord(
            organization,
            result.name,
            None,
            CallOutcome.success if result.ok else CallOutcome.interrupted,
            at,
            run.agent_id,
            run.id,
            row.step_id,
            result.call_id,
            took=used(result.call_id),
            counted=True,  # how far it came is unknown
        )
        for row in rows
        for result in row.tool_returns
    ]


def outside_turn(run: Run, made: Sequence[Step], now: Micros) -> Run:
    """A run outside any turn with these steps, at its end."""
    for step in made:
        run = replace(run, usage=run.usage + step.usage, step_count=run.step_count + 1)
    return ended(run, StopReason.end_turn, now)


def write_outside_turn(tx: Tx, run: Run, made: Sequence[Step], organization: OrganizationId) -> None:
    """Stores a run that is over, with its steps. Its cost counts against the agent's budget."""
    runs.open_run(tx, replace(run, status=RunStatus.running), organization, RunInput((), 1), NOBODY)
    for step in made:
        steps.add(tx, step, organization)
    runs.finish(tx, run)
