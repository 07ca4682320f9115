"""Items of a batch inside a transaction: the run of one that begins, and the outcome of one whose run has ended.

The run and the state of its item are written together, so an agent gets each item exactly once, whichever server sends
it and whenever that server stops. A turn that failed is not tried again: the items behind it may have been heard since.
"""

from collections.abc import Mapping
from dataclasses import replace

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.inbox import run_acceptance
from kelpie.agent.resources.conversations.conversation_opening import ConversationOpening, write_fork
from kelpie.agent.turn import duplicate_sends
from kelpie.agent.turn.duplicate_sends import BATCH_ITEM
from kelpie.core.conversations.batches import UNSENT, BatchItem, ItemStatus
from kelpie.core.conversations.jobs import Job
from kelpie.core.conversations.runs import UNFINISHED, Run, RunStatus
from kelpie.core.errors import AgentStopped, MailboxFull, NotFound, PendingApproval, QuotaExceeded
from kelpie.core.ids import RunId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.conversations import conversations
from kelpie.storage.runs import batches
from kelpie.world.database import Tx

ERROR_CHARS_MAX = 500
NO_AGENT = "The agent was deleted."
NO_CONVERSATION = "The conversation was deleted."
NO_RUN = "The run was deleted before its end was recorded."

_LATER = (MailboxFull, QuotaExceeded)  # the agent may take the messages later
_NEVER = (AgentStopped, PendingApproval)


def begin(
    tx: Tx,
    job: Job,
    item: BatchItem,
    run_id: RunId,
    fork: ConversationOpening | None,
    quotas: Quotas,
    settings: Settings,
    at: Micros,
) -> tuple[BatchItem, Run | None]:
    """The item after an attempt to send it, and the run that is stored for it; the caller stores the item.

    With `fork` it is said in a new conversation that begins like the one it was meant for.
    """
    origin = item.conversation_id
    if not _has_agent(tx, item):
        return ended(item, ItemStatus.failed, at, NO_AGENT), None
    if origin is not None and not conversations.is_live(tx, origin):
        return ended(item, ItemStatus.failed, at, NO_CONVERSATION), None
    what = batches.input_of(tx, item)
    place = origin if fork is None else fork.id
    same = None if fork else duplicate_sends.find(tx, item.agent_id, place or "", what.given, batch_item=item.place)
    if same is not None and same.background:
        return replace(item, status=ItemStatus.running, run_id=same.id, error=None, updated_at=at), same
    run = Run(
        id=run_id,
        agent_id=item.agent_id,
        status=RunStatus.created,
        created_at=at,
        conversation_id=place,
        background=True,
        metadata={"run_type": "batch", "batch_id": item.batch_id, BATCH_ITEM: item.place},
        request_config=what.request_config,
    )
    try:
        run_acceptance.accept(tx, run, item.organization_id, what.given, quotas, settings.mailbox_size)
    except _LATER as error:
        if at - job.created_at > UNSENT:
            return ended(item, ItemStatus.failed, at, f"It could not be sent within a day: {error}"), None
        return replace(item, error=str(error)[:ERROR_CHARS_MAX], updated_at=at), None
    except _NEVER as error:
        return ended(item, ItemStatus.failed, at, str(error)), None
    if fork is not None:
        write_fork(tx, fork, item.agent_id if origin is None else origin, hidden=True)
    begun = replace(item, status=ItemStatus.running, conversation_id=place, run_id=run.id, error=None, updated_at=at)
    return begun, run


def settle(tx: Tx, item: BatchItem, runs: Mapping[RunId, Run], now: Micros) -> BatchItem | None:
    """The item after the end of its run; None while that goes on."""
    run = None if item.run_id is None else runs.get(item.run_id)
    if run is None or (run.status in UNFINISHED and not _has_agent(tx, item)):
        return ended(item, ItemStatus.failed, now, NO_RUN if _has_agent(tx, item) else NO_AGENT)
    match run.status:
        case RunStatus.created | RunStatus.running:
            return None
        case RunStatus.completed:
            return ended(item, ItemStatus.completed, now)
        case RunStatus.cancelled:
            return ended(item, ItemStatus.cancelled, now, "The run was cancelled.")
        case RunStatus.failed:
            return ended(item, ItemStatus.failed, now, _reason(run))


def ended(item: BatchItem, status: ItemStatus, at: Micros, error: str | None = None) -> BatchItem:
    return replace(item, status=status, error=None if error is None else error[:ERROR_CHARS_MAX], updated_at=at)


def _reason(run: Run) -> str:
    told = run.metadata.get("error")
    if isinstance(told, Mapping) and told.get("message"):
        return str(told["message"])
    return f"The turn failed: {run.stop_detail or (run.stop_reason.value if run.stop_reason else 'unknown')}"


def _has_agent(tx: Tx, item: BatchItem) -> bool:
    try:
        row_ownership.agent(tx, item.organization_id, item.agent_id)
    except NotFound:
        return False
    return True
