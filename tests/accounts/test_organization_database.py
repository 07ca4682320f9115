"""The database of one organization: what is read while its memory changes is read again when that is done."""

import asyncio
from collections.abc import Callable
from typing import Any

from kelpie.accounts.quotas.organization_database import MemoryGate, OrganizationDatabase
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.world.clock import SystemClock

ORGANIZATION, AGENT = OrganizationId("org-1"), AgentId("agent-1")


class Slow:
    """A database whose first read is answered when `answers` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.reads = 0

    async def read(self, _fn: Callable[[Any], Any]) -> int:
        self.reads += 1
        if self.reads == 1:
            await self.answers.wait()
            return 1
        return self.reads


async def test_what_was_read_while_a_change_began_is_read_again_after_it() -> None:
    slow, gate = Slow(), MemoryGate()
    database = OrganizationDatabase(slow, ORGANIZATION, Quotas(SystemClock()), gate)  # type: ignore[arg-type]
    reading = asyncio.ensure_future(database.read(lambda _tx: None))
    await asyncio.sleep(0)
    gate.hold(ORGANIZATION, AGENT)
    slow.answers.set()
    await asyncio.sleep(0)
    assert not reading.done() and slow.reads == 1
    gate.release(ORGANIZATION, AGENT)
    assert await reading == 2


async def test_what_was_read_while_another_organization_changed_is_given() -> None:
    slow, gate = Slow(), MemoryGate()
    database = OrganizationDatabase(slow, ORGANIZATION, Quotas(SystemClock()), gate)  # type: ignore[arg-type]
    reading = asyncio.ensure_future(database.read(lambda _tx: None))
    await asyncio.sleep(0)
    gate.hold(OrganizationId("org-2"), AGENT)
    slow.answers.set()
    assert await reading == 1
