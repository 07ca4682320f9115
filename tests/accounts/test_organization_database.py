"""The database of one organization: what is read while its memory changes is read again when that is done."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kelpie.accounts.quotas.organization_database import WAIT_S, MemoryGate, OrganizationDatabase
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.core.errors import StorageBusy
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.world.clock import SystemClock
from tests.llm.test_retry import in_virtual_time, now

ORGANIZATION, AGENT, OTHER = OrganizationId("org-1"), AgentId("agent-1"), AgentId("agent-2")


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


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_clients_wait_until_every_agent_of_the_organization_is_done() -> None:
    gate = MemoryGate()
    for agent in (AGENT, OTHER, AGENT):  # one of them twice, as after a restart of its change
        gate.hold(ORGANIZATION, agent)
    waiting = [asyncio.ensure_future(gate.passed(ORGANIZATION)) for _ in range(2)]
    await settled()
    gate.release(ORGANIZATION, AGENT)
    gate.release(ORGANIZATION, AGENT)
    gate.release(OrganizationId("org-2"), OTHER)
    await settled()
    assert not any(each.done() for each in waiting)
    gate.release(ORGANIZATION, OTHER)
    assert await asyncio.gather(*waiting) == [3, 3]
    assert await gate.passed(ORGANIZATION) == 3, "it is open again"


async def test_a_change_that_begins_when_another_ends_is_waited_for_as_well() -> None:
    gate = MemoryGate()
    gate.hold(ORGANIZATION, AGENT)
    waiting = asyncio.ensure_future(gate.passed(ORGANIZATION))
    await settled()
    gate.release(ORGANIZATION, AGENT)
    gate.hold(ORGANIZATION, OTHER)
    await settled()
    assert not waiting.done()
    gate.release(ORGANIZATION, OTHER)
    assert await waiting == 2


async def test_waits_for_agents_whose_change_is_over_end_and_those_of_others_do_not() -> None:
    gate, third = MemoryGate(), OrganizationId("org-3")
    gate.hold(ORGANIZATION, AGENT)
    gate.hold(third, OTHER)
    waiting = [asyncio.ensure_future(gate.passed(each)) for each in (ORGANIZATION, third)]
    await settled()
    gate.keep([OTHER])
    await settled()
    assert [each.done() for each in waiting] == [True, False]
    gate.keep([])
    assert await asyncio.gather(*waiting) == [1, 1]


def test_a_client_does_not_wait_for_ever() -> None:
    async def main() -> None:
        gate = MemoryGate()
        gate.hold(ORGANIZATION, AGENT)
        database = OrganizationDatabase(Slow(), ORGANIZATION, Quotas(SystemClock()), gate)  # type: ignore[arg-type]
        for asked in (database.read, database.transact):
            began = now()
            with pytest.raises(StorageBusy, match="not done yet"):
                await asked(lambda _tx: None)
            assert now() - began == WAIT_S

    in_virtual_time(main)
