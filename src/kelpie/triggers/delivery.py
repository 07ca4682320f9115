"""Delivery of a firing inside a transaction: the run or the batch that gives the agent its messages, or the reason why
not yet.

The run and the state of the firing are written together, so the agent gets each firing exactly once, whichever server
delivers it and whenever that server stops.
"""

from dataclasses import dataclass, replace
from typing import Any

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.inbox import run_acceptance
from kelpie.core.conversations.messages import NewMessage
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.errors import AgentStopped, Conflict, MailboxFull, PendingApproval, QuotaExceeded
from kelpie.core.ids import JobId, RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.core.triggers.schedules import (
    ERROR_CHARS_MAX,
    Firing,
    FiringStatus,
    Schedule,
    ScheduledMessages,
    after_failure,
)
from kelpie.storage.conversations import conversations
from kelpie.storage.runs.input import RunInput
from kelpie.storage.triggers import firings
from kelpie.triggers import scheduled_batch
from kelpie.world.database import Tx

NO_CONVERSATION = "The conversation was deleted. Choose another one for the schedule, or none."

# Reasons for which an agent may take the messages later.
_LATER = (AgentStopped, Conflict, PendingApproval, MailboxFull, QuotaExceeded)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to deliver a firing: its time, and the ids of what it may store, drawn before the transaction."""

    at: Micros
    run_id: RunId
    batch_id: JobId


def deliver(
    tx: Tx, schedule: Schedule, firing: Firing, attempt: Attempt, quotas: Quotas, settings: Settings
) -> tuple[Firing, Run | None]:
    """Stores what gives the agent its messages. Returns the firing as it is then, which the caller stores, and its run,
    if that is not one of a batch."""
    now, said = attempt.at, schedule.said
    if said.conversation_id is not None and not conversations.is_live(tx, said.conversation_id):
        dead = replace(firing, status=FiringStatus.dead, attempt_at=None, error=NO_CONVERSATION, updated_at=now)
        return dead, None
    messages = _own_ids(said, firing)
    max_steps = settings.max_steps if said.max_steps is None else said.max_steps
    config: dict[str, Any] = (
        {} if said.return_types is None else {"include_return_message_types": list(said.return_types)}
    )
    run = None if said.batch else _run(schedule, firing, attempt, config)
    try:
        if run is None:
            scheduled_batch.store(tx, attempt.batch_id, schedule, messages, max_steps, config, now)
        else:
            given = RunInput(messages, max_steps)
            run_acceptance.accept(tx, run, schedule.organization_id, given, quotas, settings.mailbox_size)
    except _LATER as error:
        return after_failure(firing, str(error), now), None
    begun = replace(
        firing,
        status=FiringStatus.running,
        attempts=firing.attempts + 1,
        attempt_at=None,
        run_id=None if run is None else run.id,
        batch_id=attempt.batch_id if run is None else None,
        error=None,
        updated_at=now,
    )
    return begun, run


def settle(tx: Tx, firing: Firing, now: Micros) -> Firing | None:
    """The firing after the end of its run or batch; None while that goes on.

    A turn that failed before its first step left nothing in the history, so it can be tried again. One that failed
    later would say everything twice.
    """
    if firing.batch_id is not None:
        return scheduled_batch.settle(tx, firing, firing.batch_id, now)
    run = firings.run_of(tx, firing)
    done = replace(firing, status=FiringStatus.done, attempt_at=None, updated_at=now)
    if run is None:
        return replace(done, error="The run was deleted before its end was recorded.")
    match run.status:
        case RunStatus.created | RunStatus.running:
            return None
        case RunStatus.completed:
            return done
        case RunStatus.cancelled:
            return replace(done, status=FiringStatus.cancelled)
        case RunStatus.failed:
            reason = run.stop_detail or (run.stop_reason.value if run.stop_reason else "unknown")
            if run.step_count == 0:
                return after_failure(firing, f"The turn failed: {reason}", now, counted=True)
            text = f"The turn failed after {run.step_count} steps, so it is not tried again: {reason}"
            return replace(done, status=FiringStatus.dead, error=text[:ERROR_CHARS_MAX])


def _run(schedule: Schedule, firing: Firing, attempt: Attempt, config: dict[str, Any]) -> Run:
    return Run(
        id=attempt.run_id,
        agent_id=schedule.agent_id,
        status=RunStatus.created,
        created_at=attempt.at,
        conversation_id=schedule.said.conversation_id,
        background=True,
        metadata={"run_type": "schedule", "schedule_id": schedule.id, "firing_id": firing.id},
        request_config=config,
        callback_url=schedule.said.callback_url,
    )


def _own_ids(said: ScheduledMessages, firing: Firing) -> tuple[NewMessage, ...]:
    """The messages, each with an id of its own: the same id twice in a conversation would be a message sent twice."""
    return tuple(
        replace(message, otid=f"{firing.id}-{firing.attempts}-{number}") for number, message in enumerate(said.messages)
    )
