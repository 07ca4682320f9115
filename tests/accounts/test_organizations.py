"""An organisation comes whole or not at all."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kelpie.accounts.organizations import Organizations
from kelpie.app import Kelpie
from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import NewAgent
from kelpie.core.errors import Conflict, Forbidden, StorageError
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.core.paging import Page
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.storage.tables import removed_agents
from tests.server.rig import open_rig


@pytest.fixture
async def kelpie(tmp_path: Path) -> AsyncIterator[Kelpie]:
    async with open_rig(tmp_path) as (opened, _):
        yield opened


async def test_an_organization_that_cannot_be_furnished_is_not_made(kelpie: Kelpie) -> None:
    def fails(*_: Any) -> None:
        raise StorageError("the disk is gone")

    door = Organizations(kelpie.world, fails, lambda: None, OrganizationShare())
    with pytest.raises(StorageError):
        await door.create("acme")
    assert [each.id for each in await door.page(Page())] == [DEFAULT_ORGANIZATION]


async def test_only_the_operator_makes_and_removes_them(kelpie: Kelpie) -> None:
    door = kelpie.api(Caller()).organizations
    with pytest.raises(Forbidden):
        await door.create("acme")
    with pytest.raises(Forbidden):
        await door.delete(DEFAULT_ORGANIZATION)
    with pytest.raises(Forbidden):
        await door.update(DEFAULT_ORGANIZATION, None, True)
    assert (await door.update(DEFAULT_ORGANIZATION, "renamed", None)).name == "renamed"


async def test_an_organization_stays_while_an_agent_of_it_is_being_removed(kelpie: Kelpie) -> None:
    door = kelpie.api().organizations
    made = await door.create("acme")
    agent = (await kelpie.api().agents.create(NewAgent())).agent.id
    row = {"agent_id": agent, "organization_id": made.id, "removed_at": 1}
    await kelpie.world.database.transact(lambda tx: tx.execute(sa.insert(removed_agents), row))
    with pytest.raises(Conflict, match="still being removed"):
        await door.delete(made.id)
    await kelpie.world.database.transact(lambda tx: tx.execute(sa.delete(removed_agents)))
    assert (await door.delete(made.id)).id == made.id
