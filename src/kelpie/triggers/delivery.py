"""Delivery of a firing inside a transaction: the run that gives the agent its messages, or the reason why not yet.

The run and the state of the firing are written together, so the agent gets each firing exactly once, whichever server
delivers it and whenever that server stops.
"""

from dataclasses import replace
from typing import Any

from kelpie.accounts.quotas import Quotas
from kelpie.agent.inbox import run_acceptance
from kelpie.core.conversations.messages import NewMessage
from kelpie.core.conversations.runs import Run, RunStatus
from kelpie.core.errors import AgentStopped, MailboxFull, PendingApproval, QuotaExceeded
from kelpie.core.ids import RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.core.triggers.schedules import Firing, FiringStatus, Schedule, ScheduledMessages, retry_at
from kelpie.storage.conversations import conversations
from kelpie.storage.runs.input import RunInput
from kelpie.storage.triggers import firings
from kelpie.world.database import Tx

ERROR_CHARS_MAX = 500
NO_CONVERSATION = "The conversation was deleted. Choose another one for the schedule, or none."

# Reasons for which an agent may take the messages later.
_LATER = (AgentStopped, PendingApproval, MailboxFull, QuotaExceeded)


def scheduled_run(run_id: RunId, schedule: Schedule, firing: Firing, now: Micros) -> Run:
    """The run of an attempt."""
    said = schedule.said
    config: dict[str, Any] = (
        {} if said.return_types is None else {"include_return_message_types": list(said.return_types)}
    )
    return Run(
        id=run_id,
        agent_id=schedule.agent_id,
        status=RunStatus.created,
        created_at=now,
        conversation_id=said.conversation_id,
        background=True,
        metadata={"run_type": "schedule", "schedule_id": schedule.id, "firing_id": firing.id},
        request_config=config,
        callback_url=said.callback_url,
    )


def deliver(tx: Tx, schedule: Schedule, firing: Firing, run: Run, quotas: Quotas, settings: Settings) -> Firing:
    """Stores the run of an attempt and returns the firing as it is then; the caller stores that."""
    now, said = run.created_at, schedule.said
    if said.conversation_id is not None and not conversations.is_live(tx, said.conversation_id):
        return replace(firing, status=FiringStatus.dead, attempt_at=None, error=NO_CONVERSATION, updated_at=now)
    given = RunInput(_own_ids(said, firing), settings.max_steps if said.max_steps is None else said.max_steps)
    try:
        run_acceptance.accept(tx, run, schedule.organization_id, given, quotas, settings.mailbox_size)
    except _LATER as error:
        return failed(firing, str(error), now)
    return replace(
        firing,
        status=FiringStatus.running,
        attempts=firing.attempts + 1,
        attempt_at=None,
        run_id=run.id,
        error=None,
        updated_at=now,
    )


def settle(tx: Tx, firing: Firing, now: Micros) -> Firing | None:
    """The firing after the end of its run; None while that goes on.

    A turn that failed before its first step left nothing in the history, so it can be tried again. One that failed
    later would say everything twice.
    """
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
                return failed(firing, f"The turn failed: {reason}", now, counted=True)
            text = f"The turn failed after {run.step_count} steps, so it is not tried again: {reason}"
            return replace(done, status=FiringStatus.dead, error=text[:ERROR_CHARS_MAX])


def failed(firing: Firing, error: str, now: Micros, *, counted: bool = False) -> Firing:
    """The firing after an attempt that failed: it waits for the next one, or is given up."""
    attempts = firing.attempts if counted else firing.attempts + 1
    again_at = retry_at(attempts, now)
    return replace(
        firing,
        status=FiringStatus.dead if again_at is None else FiringStatus.waiting,
        attempts=attempts,
        attempt_at=again_at,
        error=error[:ERROR_CHARS_MAX],
        updated_at=now,
    )


def _own_ids(said: ScheduledMessages, firing: Firing) -> tuple[NewMessage, ...]:
    """The messages, each with an id of its own: the same id twice in a conversation would be a message sent twice."""
    return tuple(
        replace(message, otid=f"{firing.id}-{firing.attempts}-{number}") for number, message in enumerate(said.messages)
    )
