"""Authors in the document of a checkpoint: those of another organization are replaced, wherever they stand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.access.callers import Organization, User
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, OrganizationId, UserId
from kelpie.storage.accounts import accounts
from kelpie.storage.agents import agents
from kelpie.storage.checkpoints import authors
from kelpie.world.database import Tx
from tests.tools.workshop import ANN, NOW, make_agent, open_world

OTHER = OrganizationId("org-00000000-0000-4000-8000-000000000002")
STRANGER = UserId("user-00000000-0000-4000-8000-000000000003")
THEIR_AGENT = AgentId("agent-00000000-0000-4000-8000-000000000004")
GONE = "user-00000000-0000-4000-8000-000000000005"
ME = UserId("user-00000000-0000-4000-8000-000000000006")


def _memory(made: str | None, changed: str | None) -> dict[str, Any]:
    def by() -> dict[str, Any]:
        return {"created_by_id": made, "last_updated_by_id": changed}

    return {
        "blocks": [by(), by()],
        "conversations": [{"blocks": {"human": by()}}, {"blocks": None}, {}],
        "archive": {"archive": by(), "passages": [by()]},
        "messages": [by()],  # they have no authors: what stands there is refused later
    }


@pytest.mark.parametrize("foreign", [STRANGER, THEIR_AGENT])
async def test_an_author_of_another_organization_is_replaced_everywhere(tmp_path: Path, foreign: str) -> None:
    def write(tx: Tx) -> None:
        accounts.insert_organization(tx, Organization(OTHER, "north", False, NOW, NOW))
        accounts.insert_user(tx, User(STRANGER, OTHER, "uma", NOW, NOW))
        agents.create(tx, replace(make_agent(THEIR_AGENT), organization_id=OTHER))
        for pair in ((foreign, ANN), (GONE, foreign), (None, GONE), (foreign, foreign)):
            memory, wanted = _memory(*pair), [ME if each == foreign else each for each in pair]
            messages = memory["messages"]
            authors.replace_foreign(tx, memory, DEFAULT_ORGANIZATION, ME)
            assert memory == {**_memory(wanted[0], wanted[1]), "messages": messages}, pair
            assert messages == _memory(*pair)["messages"]

    async with open_world(tmp_path) as world:
        await world.database.transact(write)
