"""What makes the rows of agents small changes nothing that is read: short authors, narrow indexes, numbers of names."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import insert, text

from kelpie.core.agents.agent import Agent, AgentQuery, AgentType, ModelChoice
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, AgentId, BlockId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block
from kelpie.core.paging import Page
from kelpie.storage import migrations, name_index, schema
from kelpie.storage.agents import agents
from kelpie.storage.blocks import blocks, history
from kelpie.storage.tables import organizations
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

OTHER_USER = "user-00000000-0000-4000-8000-000000000007"
BLOCK = BlockId("block-00000000-0000-4000-8000-000000000001")
SHORT = "SELECT created_by_id, last_updated_by_id FROM {}"


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        row = {"name": "x", "privileged_tools": False, "created_at": 1, "updated_at": 1}
        connection.execute(insert(organizations), row | {"id": DEFAULT_ORGANIZATION})
        yield connection


def agent_id(number: int) -> AgentId:
    return AgentId(f"agent-00000000-0000-4000-8000-{number:012d}")


def add(tx: Tx, number: int, user: str | None, at: int = 1) -> Agent:
    model = ModelChoice("kelpie/demo", 8000)
    made = Agent(agent_id(number), f"agent {number:04d}", AgentType.letta_v1_agent, "", model, at, at)
    made = replace(made, created_by_id=user, last_updated_by_id=user)
    agents.create(tx, made)
    return made


def listed(tx: Tx, page: Page, created_by_id: str | None = None) -> list[str]:
    return [
        each.id
        for each in agents.select_agents(tx, DEFAULT_ORGANIZATION, AgentQuery(page, created_by_id=created_by_id))
    ]


def test_the_default_user_takes_no_space_and_is_read_and_found_as_any_other(tx: Tx) -> None:
    made = [add(tx, number, user) for number, user in enumerate((DEFAULT_USER, OTHER_USER, None))]
    assert tx.execute(text(SHORT.format("agents"))).all() == [("", ""), (OTHER_USER, OTHER_USER), (None, None)]
    assert [agents.get(tx, each.id) for each in made] == made
    assert listed(tx, Page(), DEFAULT_USER) == [agent_id(0)]
    assert listed(tx, Page(), OTHER_USER) == [agent_id(1)]


@pytest.mark.parametrize("user", [DEFAULT_USER, OTHER_USER])
def test_the_author_of_a_block_is_read_back_and_its_history_is_whole(tx: Tx, user: str) -> None:
    block = Block(
        id=BLOCK, label="human", value="v", created_at=1, updated_at=1, created_by_id=user, last_updated_by_id=user
    )
    by = Author(AuthorKind.user, user)
    blocks.insert(tx, [block], by)
    assert blocks.get(tx, BLOCK) == block
    assert history.get(tx, block, 1, 10).by == by
    whole = "user-00000000-0000-4000-8000-000000000000"  # as a row from before has it
    tx.execute(text("UPDATE block_history SET author_id = :id WHERE author_id = ''"), {"id": whole})
    assert history.get(tx, block, 1, 10).by == by and history.select(tx, block, 10, None, 10)[0].by == by


@pytest.mark.parametrize("descending", [True, False])
def test_agents_of_one_moment_are_listed_in_the_order_of_their_ids_page_by_page(tx: Tx, *, descending: bool) -> None:
    for number in (7, 3, 9, 1, 5, 8, 2, 6, 4):
        add(tx, number, DEFAULT_USER, at=1 + number // 7)
    wanted = [agent_id(number) for number in range(1, 10)]
    wanted = wanted[::-1] if descending else wanted
    found, after = list[str](), None
    while page := listed(tx, Page(limit=2, after=after, descending=descending)):
        found, after = [*found, *page], page[-1]
    assert found == wanted
    assert listed(tx, Page(limit=3, before=wanted[5], descending=descending)) == wanted[2:5]


def test_an_upgrade_and_the_way_back_keep_agents_and_their_names(tx: Tx) -> None:
    made = [add(tx, number, user) for number, user in enumerate((DEFAULT_USER, OTHER_USER, DEFAULT_USER))]
    tx.execute(text("DELETE FROM agents WHERE id = :id"), {"id": agent_id(1)})
    migrations.downgrade(tx, schema.REVISIONS.locations, "0023")
    assert tx.execute(text(SHORT.format("agents"))).all() == [(DEFAULT_USER, DEFAULT_USER)] * 2
    numbers = "SELECT agent_id, number FROM agent_numbers ORDER BY number"
    assert tx.execute(text(numbers)).all() == [(agent_id(0), 1), (agent_id(2), 3)]
    tx.execute(text("UPDATE agents SET name = 'renamed before' WHERE id = :id"), {"id": agent_id(2)})

    schema.migrate(tx)
    assert agents.get(tx, agent_id(0)) == made[0]
    assert sorted(listed(tx, Page(), DEFAULT_USER)) == [agent_id(0), agent_id(2)]
    add(tx, 4, DEFAULT_USER)
    agents.update_agent(tx, agent_id(0), {"name": "renamed after"}, 2)
    assert name_index.candidates(tx, "renamed", 10) == [agent_id(0), agent_id(2)]
    assert name_index.candidates(tx, "agent 0", 10) == [agent_id(4)]
    tx.execute(text("DELETE FROM agents WHERE id = :id"), {"id": agent_id(2)})
    assert name_index.candidates(tx, "renamed", 10) == [agent_id(0)]
