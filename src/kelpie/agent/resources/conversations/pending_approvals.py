"""Pending approvals: the requests whose tool calls wait for a client, in all conversations of an organization."""

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.conversations.approvals import PendingRequest
from kelpie.core.ids import AgentId
from kelpie.storage.conversations import approvals
from kelpie.world.database import Database


class PendingApprovals:
    """Pending approvals of the caller's organization."""

    def __init__(self, database: Database, caller: Caller = DEFAULT_CALLER) -> None:
        self._database = database
        self._organization = caller.organization_id

    async def newest(self, agent_id: AgentId | None, limit: int) -> list[PendingRequest]:
        """The newest requests, of one agent or of all."""
        return await self._database.read(lambda tx: approvals.pending(tx, self._organization, agent_id, limit))
