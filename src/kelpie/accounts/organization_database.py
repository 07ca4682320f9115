"""The database as the API of one organization uses it: a write that adds more than the organization may store is
refused, and nothing is read or written while a change of the organization's memory is half done.

Turns do not use it: what a turn has done is always stored.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kelpie.accounts.quotas import Quotas
from kelpie.core.ids import OrganizationId
from kelpie.core.permissions.organization_limits import check_growth
from kelpie.storage.accounts import usage
from kelpie.world.database import Database, T, Tx


class MemoryGate:
    """Organizations whose memory is being changed in several transactions: their clients wait until it is done."""

    def __init__(self) -> None:
        self._closed: dict[OrganizationId, tuple[int, asyncio.Event]] = {}  # number of changes, and their end
        self._closings: dict[OrganizationId, int] = {}

    @contextmanager
    def closed(self, organization: OrganizationId) -> Iterator[None]:
        """Keeps the clients of an organization waiting."""
        count, event = self._closed.get(organization) or (0, asyncio.Event())
        self._closed[organization] = (count + 1, event)
        self._closings[organization] = self._closings.get(organization, 0) + 1
        try:
            yield
        finally:
            count, event = self._closed.pop(organization)
            if count > 1:
                self._closed[organization] = (count - 1, event)
            else:
                event.set()

    async def passed(self, organization: OrganizationId) -> int:
        """Waits until no change is under way; returns the number of changes there have been."""
        while (found := self._closed.get(organization)) is not None:
            await found[1].wait()
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
        if not (limits.agents or limits.messages or limits.stored_mb):
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
