"""The batch of a firing whose messages have a turn each, inside a transaction. The runner of batches executes it.

The batch and the state of the firing are written together, as a run is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kelpie.agent.inbox import run_acceptance
from kelpie.core.conversations.batches import ACTIVE_MAX, PARALLEL, TOTAL, BatchItem, ItemStatus
from kelpie.core.conversations.jobs import ACTIVE, Job, JobStatus, JobType
from kelpie.core.conversations.messages import NewMessage
from kelpie.core.errors import Conflict
from kelpie.core.ids import JobId
from kelpie.core.time import Micros
from kelpie.core.triggers.schedules import ERROR_CHARS_MAX, Firing, FiringStatus, Schedule, after_failure
from kelpie.storage.runs import batches, runs
from kelpie.storage.runs.batches import ItemInput
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Tx

NO_BATCH = "The batch was deleted before its end was recorded."


def store(
    tx: Tx,
    batch_id: JobId,
    schedule: Schedule,
    messages: Sequence[NewMessage],
    max_steps: int,
    config: dict[str, Any],
    now: Micros,
) -> None:
    """Stores a batch with an item for each message.

    Raises AgentStopped, PendingApproval, and Conflict when there are too many batches.
    """
    said = schedule.said
    run_acceptance.require_ready(tx, schedule.agent_id, said.conversation_id)
    if batches.count_active(tx, schedule.organization_id) >= ACTIVE_MAX:
        raise Conflict(f"{ACTIVE_MAX} batches have not ended, which is the maximum.")
    job = Job(
        id=batch_id,
        created_at=now,
        updated_at=now,
        job_type=JobType.batch,
        background=True,
        agent_id=schedule.agent_id,
        metadata={PARALLEL: False, TOTAL: len(messages), "schedule_id": schedule.id},
        callback_url=said.callback_url,
    )
    items = [
        BatchItem(
            batch_id, place, schedule.organization_id, schedule.agent_id, ItemStatus.waiting, now, said.conversation_id
        )
        for place in range(len(messages))
    ]
    given = [ItemInput(RunInput((message,), max_steps), config) for message in messages]
    batches.insert(tx, job, schedule.organization_id, list(zip(items, given, strict=True)))


def settle(tx: Tx, firing: Firing, batch_id: JobId, now: Micros) -> Firing | None:
    """The firing after the end of its batch; None while that goes on.

    It is tried again if every message failed before its first step. An agent that heard any would hear it twice.
    """
    found = batches.find(tx, batch_id)
    done = replace(firing, status=FiringStatus.done, attempt_at=None, updated_at=now)
    if found is None:
        return replace(done, error=NO_BATCH)
    job, _ = found
    if job.status in ACTIVE:
        return None
    if job.status is JobStatus.cancelled:
        return replace(done, status=FiringStatus.cancelled)
    items = batches.items(tx, batch_id)
    reasons = [item.error or "unknown" for item in items if item.status is not ItemStatus.completed]
    if not reasons:
        return done
    text = f"{len(reasons)} of {len(items)} messages failed: {reasons[0]}"
    if len(reasons) < len(items):
        return replace(done, error=text[:ERROR_CHARS_MAX])
    if not any(run.step_count for run in runs.get_many(tx, [item.run_id for item in items if item.run_id is not None])):
        return after_failure(firing, text, now, counted=True)
    return replace(done, status=FiringStatus.dead, error=f"It is not tried again: {text}"[:ERROR_CHARS_MAX])
