"""Pending approvals: the conversations that wait for a client's answer, as rows. A row is deleted with its request."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from kelpie.core.conversations.approvals import PendingCalls, PendingRequest
from kelpie.core.conversations.messages import Message
from kelpie.core.ids import AgentId, MessageId, OrganizationId, RunId
from kelpie.core.time import Micros
from kelpie.storage.conversations.message_rows import answers_from_json, answers_to_json, from_row
from kelpie.storage.tables import agents, approvals, messages
from kelpie.world.database import Tx

_OF_LANE = (approvals.c.agent_id == bindparam("of_agent"), approvals.c.conversation_id == bindparam("of_conversation"))
_SAME = (*_OF_LANE, approvals.c.message_id == bindparam("of_message"))
_INSERT = insert(approvals)
_ONE = select(approvals).where(*_OF_LANE)
_OF_AGENT = select(approvals).where(approvals.c.agent_id == bindparam("of_agent")).order_by(approvals.c.conversation_id)
_TAKE = delete(approvals).where(*_SAME)
_NOTE = update(approvals).where(*_SAME).values(answers=bindparam("new_answers"))
_DUE = (
    select(approvals)
    .join(agents, agents.c.id == approvals.c.agent_id)
    .where(approvals.c.requested_at <= bindparam("before"), agents.c.stopped.is_(False))
    .order_by(approvals.c.requested_at, approvals.c.agent_id, approvals.c.conversation_id)
    .limit(bindparam("most"))
)
_REQUESTS = (
    select(messages)
    .join(approvals, approvals.c.message_id == messages.c.id)
    .where(approvals.c.agent_id.in_(bindparam("ids", expanding=True)), approvals.c.conversation_id == "")
)
_PENDING = (
    select(
        messages,
        approvals.c.conversation_id.label("in_conversation"),
        approvals.c.answers.label("given"),
        approvals.c.requested_at,
        agents.c.name.label("agent_name"),
    )
    .join(messages, messages.c.id == approvals.c.message_id)
    .join(agents, agents.c.id == approvals.c.agent_id)
    .where(agents.c.organization_id == bindparam("of_organization"))
    .order_by(approvals.c.requested_at.desc(), approvals.c.agent_id, approvals.c.conversation_id)
    .limit(bindparam("most"))
)
_PENDING_OF_AGENT = _PENDING.where(approvals.c.agent_id == bindparam("of_agent"))


def get(tx: Tx, agent_id: AgentId, conversation: str) -> PendingCalls | None:
    """The pending calls of this conversation, if any."""
    row = tx.execute(_ONE, {"of_agent": agent_id, "of_conversation": conversation}).first()
    return None if row is None else _from_row(row)


def of_agent(tx: Tx, agent_id: AgentId) -> list[PendingCalls]:
    """The pending calls of all conversations of an agent."""
    return [_from_row(row) for row in tx.execute(_OF_AGENT, {"of_agent": agent_id})]


def move(tx: Tx, before: PendingCalls | None, after: PendingCalls | None) -> bool:
    """Sets, reduces or clears the pending calls of a conversation; False when they are no longer as expected."""
    if before is None:
        if after is not None:
            tx.execute(_INSERT, _to_row(after))
        return True
    same = {"of_agent": before.agent_id, "of_conversation": before.conversation, "of_message": before.request}
    if after is None:
        return tx.execute(_TAKE, same).rowcount == 1
    return tx.execute(_NOTE, {**same, "new_answers": answers_to_json(after.answers)}).rowcount == 1


def due(tx: Tx, before: Micros, most: int) -> list[PendingCalls]:
    """Approvals that have waited since then or longer, the longest first, up to a limit; those of stopped agents are
    left out."""
    return [_from_row(row) for row in tx.execute(_DUE, {"before": before, "most": most})]


def requests_of(tx: Tx, agent_ids: Sequence[AgentId]) -> dict[str, Message]:
    """The pending requests of the default conversations of these agents, by agent."""
    return {row.agent_id: from_row(row) for row in tx.execute(_REQUESTS, {"ids": list(agent_ids)})}


def pending(tx: Tx, organization: OrganizationId, agent_id: AgentId | None, limit: int) -> list[PendingRequest]:
    """The newest pending requests of an organization, or of one of its agents."""
    bound = {"of_organization": organization, "most": limit}
    rows = (
        tx.execute(_PENDING, bound)
        if agent_id is None
        else tx.execute(_PENDING_OF_AGENT, {**bound, "of_agent": agent_id})
    )
    return [
        PendingRequest(
            row.agent_name,
            row.in_conversation,
            from_row(row),
            row.requested_at,
            frozenset(answer.call_id for answer in answers_from_json(row.given)),
        )
        for row in rows
    ]


def _to_row(pending: PendingCalls) -> dict[str, Any]:
    return {
        "agent_id": pending.agent_id,
        "conversation_id": pending.conversation,
        "message_id": pending.request,
        "runs": list(pending.runs),
        "answers": answers_to_json(pending.answers),
        "requested_at": pending.requested_at,
    }


def _from_row(row: Row[Any]) -> PendingCalls:
    return PendingCalls(
        AgentId(row.agent_id),
        row.conversation_id,
        MessageId(row.message_id),
        tuple(RunId(run_id) for run_id in row.runs),
        row.requested_at,
        answers_from_json(row.answers),
    )
