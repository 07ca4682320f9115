"""The database as the API of one organization uses it: a write that adds more than the organization may store is
refused, and nothing is read or written while a change of the organization's memory is half done.

Turns do not use it: what a turn has done is always stored.
"""

import asyncio
from collections.abc import Callable, Container

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.errors import StorageBusy
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.permissions.organization_limits import check_growth
from kelpie.storage.accounts import usage
from kelpie.world.database import Database, T, Tx

WAIT_S = 30.0  # for a change of memory


class MemoryGate:
    """Organizations whose memory is being changed in several transactions: their clients wait until it is done."""

    def __init__(self) -> None:
        self._changing: dict[OrganizationId, set[AgentId]] = {}
        self._opened: dict[OrganizationId, asyncio.Event] = {}
        self._closings: dict[OrganizationId, int] = {}

    def hold(self, organization: OrganizationId, agent_id: AgentId) -> None:
        """Keeps the clients of an organization waiting until the change of this agent is done."""
        self._changing.setdefault(organization, set()).add(agent_id)
        self._opened.setdefault(organization, asyncio.Event())
        self._closings[organization] = self._closings.get(organization, 0) + 1

    def release(self, organization: OrganizationId, agent_id: AgentId) -> None:
        """Ends the wait for this agent."""
        changing = self._changing.get(organization, set())
        changing.discard(agent_id)
        if not changing:
            self._changing.pop(organization, None)
            if (opened := self._opened.pop(organization, None)) is not None:
                opened.set()

    def keep(self, agent_ids: Container[AgentId]) -> None:
        """Ends every wait except for these agents."""
        for organization, changing in list(self._changing.items()):
            for agent_id in sorted(changing):
                if agent_id not in agent_ids:
                    self.release(organization, agent_id)

    async def passed(self, organization: OrganizationId) -> int:
        """Waits until no change is under way; returns the number of changes there have been. Raises StorageBusy when
        it takes too long."""
        if organization in self._opened:
            try:
                async with asyncio.timeout(WAIT_S):
                    while (opened := self._opened.get(organization)) is not None:
                        await opened.wait()
            except TimeoutError:
                raise StorageBusy(
                    "A large change of memory in this organization is not done yet. Try again in a moment."
                ) from None
        return self.closings(organization)

    def closings(self, organization: OrganizationId) -> int:
        """The number of changes that have begun."""
        return self._closings.get(organization, 0)


class OrganizationDatabase:
    """The `Database` port for the API of one organization."""

    def __init__(self, database: Database, organization: OrganizationId, quotas: Quotas, gate: MemoryGate) -> None:
        self._database = database
        self._organization = organization
        self._quotas = quotas
        self._gate = gate

    async def transact(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.transact`. Raises QuotaExceeded for a write that adds more than the organization may store."""
        await self._gate.passed(self._organization)
        limits = self._quotas.limits(self._organization)
        if not (limits.agents or limits.messages or limits.files or limits.stored_mb):
            return await self._database.transact(fn)

        def checked(tx: Tx) -> T:
            before = usage.state(tx, self._organization).used
            result = fn(tx)
            check_growth(limits, before, usage.state(tx, self._organization).used)
            return result

        return await self._database.transact(checked)

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`. What was read while a change began may be half of it, and is read again."""
        while True:
            before = await self._gate.passed(self._organization)
            result = await self._database.read(fn)
            if self._gate.closings(self._organization) == before:
                return result

    def when_in_doubt(self, tell: Callable[[], None]) -> None:
        """See `Database.when_in_doubt`."""
        self._database.when_in_doubt(tell)

    async def close(self) -> None:
        """See `Database.close`."""
        await self._database.close()
