"""Acceptance of a background run, inside a transaction: whether its agent takes a message now, and the stored run."""

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import AgentStopped, MailboxFull, PendingApproval
from kelpie.core.ids import AgentId, ConversationId, OrganizationId
from kelpie.storage.agents import agents
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.conversations import approvals
from kelpie.storage.runs import client_ids, runs
from kelpie.storage.runs.input import RunInput
from kelpie.world.database import Tx

RETRY_AFTER_S = 5.0


def accept(tx: Tx, run: Run, organization: OrganizationId, given: RunInput, quotas: Quotas, waiting_max: int) -> None:
    """Stores a run that waits for its lane.

    Raises NotFound, AgentStopped, PendingApproval, MailboxFull, QuotaExceeded.
    """
    agent_id = run.agent_id
    require_ready(tx, agent_id, run.conversation_id, answers=bool(given.answers))
    if runs.count_created(tx, agent_id) >= waiting_max:
        raise MailboxFull(
            f"{waiting_max} messages are already waiting for this agent. Send it again later.", RETRY_AFTER_S
        )
    quotas.require_room(tx, organization)
    runs.open_run(tx, run, organization, given, NOBODY)
    client_ids.add(tx, agent_id, run.id, given.otids)


def require_ready(tx: Tx, agent_id: AgentId, conversation_id: ConversationId | None, *, answers: bool = False) -> None:
    """Raises AgentStopped, and PendingApproval where a call waits for its approval and this is no answer to it."""
    if agents.get(tx, agent_id).stopped:
        raise AgentStopped(f"{agent_id} is stopped. Start it before sending messages.")
    if not answers and (pending := approvals.get(tx, agent_id, conversation_id or "")):
        raise PendingApproval(pending.request)
