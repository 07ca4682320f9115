"""Lists of agents with filters: the same results with an index of names and candidates as without."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from kelpie.core.agents.agent import Agent, AgentQuery, AgentType, Include, ModelChoice
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block
from kelpie.core.paging import Page
from kelpie.storage import name_index
from kelpie.storage.agents import agents, filters, removal
from kelpie.storage.blocks import attachments, blocks
from kelpie.storage.tables import organizations
from kelpie.storage.views import agents as agent_views
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

OURS, THEIRS = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000009")


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for organization in (OURS, THEIRS):
            row = {"id": organization, "name": "x", "privileged_tools": False, "created_at": 1, "updated_at": 1}
            connection.execute(insert(organizations), row)
        yield connection


def add(tx: Tx, number: int, name: str, organization: OrganizationId = OURS, hidden: bool | None = None) -> AgentId:
    agent_id = AgentId(f"agent-00000000-0000-4000-8000-{number:012d}")
    model = ModelChoice("kelpie/demo", 8000)
    tags = (f"tag{number % 2}",)
    made = Agent(agent_id, name, AgentType.letta_v1_agent, "", model, number, number, tags=tags, hidden=hidden)
    agents.create(tx, replace(made, organization_id=organization))
    return agent_id


def named(tx: Tx, **query: object) -> list[str]:
    wanted = AgentQuery(page=Page(limit=None, descending=False), **query)  # pyright: ignore[reportArgumentType]
    found = [agent.name for agent in agents.select_agents(tx, OURS, wanted)]
    assert agents.count(tx, OURS, wanted) == len(found)
    return found


def test_a_part_of_a_name_finds_what_contains_it_after_every_change(tx: Tx) -> None:
    first = add(tx, 1, 'Support "Bot" 100%')
    second = add(tx, 2, "support desk")
    add(tx, 3, "SUPPORT of others", THEIRS)
    assert named(tx, query_text="SUPPORT") == ['Support "Bot" 100%', "support desk"]
    assert named(tx, query_text='"bot"') == ['Support "Bot" 100%']
    assert named(tx, query_text="00%") == ['Support "Bot" 100%']
    assert named(tx, query_text="su") == ['Support "Bot" 100%', "support desk"]
    agents.update_agent(tx, second, {"name": "Sales"}, 9)
    assert named(tx, query_text="support") == ['Support "Bot" 100%']
    assert named(tx, query_text="ales") == ["Sales"]
    tx.execute(text("DELETE FROM agents WHERE id = :id"), {"id": first})
    assert named(tx, query_text="support") == []
    assert name_index.candidates(tx, "support", 10) == ["agent-00000000-0000-4000-8000-000000000003"]


def test_letters_beyond_ascii_are_compared_as_without_the_index(tx: Tx) -> None:
    add(tx, 1, "Ärger im Café")
    assert named(tx, query_text="Ärger") == ["Ärger im Café"]
    assert named(tx, query_text="ärger") == []  # SQLite knows the case of ASCII letters only
    assert named(tx, query_text="café") == ["Ärger im Café"]
    assert named(tx, query_text="caf\0é") == []


def test_more_matches_than_candidates_are_found_as_well(tx: Tx) -> None:
    for number in range(filters.CANDIDATES_MAX + 2):
        add(tx, number, f"worker {number}")
    add(tx, 5000, "another")
    assert name_index.candidates(tx, "worker", filters.CANDIDATES_MAX) is None
    assert len(named(tx, query_text="worker")) == filters.CANDIDATES_MAX + 2
    assert named(tx, query_text="worker", tags=("tag1",))[:2] == ["worker 1", "worker 3"]
    assert named(tx, query_text="other", tags=("tag0", "tag1")) == ["another"]


def test_the_count_knows_hidden_and_removed_agents(tx: Tx) -> None:
    add(tx, 1, "shown")
    add(tx, 2, "hidden", hidden=True)
    gone = add(tx, 3, "gone")
    add(tx, 4, "of others", THEIRS)
    assert agents.count(tx, OURS, AgentQuery()) == 2
    assert agents.count(tx, OURS, AgentQuery(show_hidden=True)) == 3
    removal.remove(tx, gone, 5)
    assert agents.count(tx, OURS, AgentQuery()) == 1
    assert named(tx, query_text="gone") == []


@given(st.lists(st.text(st.sampled_from('abAB ä"%_\\'), max_size=8), max_size=12), st.text('abAB"%_\\ ', max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_index_never_hides_a_match(names: list[str], part: str) -> None:
    with memory_connection() as tx:
        create_schema(tx)
        for number, name in enumerate(names):
            add(tx, number, name)
        found = named_by_scan = [name for name in names if part.lower() in name.lower()]
        if part:
            found = [agent.name for agent in agents.select_agents(tx, OURS, _by(part))]
        assert found == named_by_scan


def _by(part: str) -> AgentQuery:
    return AgentQuery(page=Page(limit=None, descending=False), query_text=part)


def test_a_page_that_is_cut_by_bytes_keeps_the_agents_next_to_its_cursor(tx: Tx) -> None:
    ids = [add(tx, number, f"agent {number}") for number in range(1, 6)]
    for number, agent_id in enumerate(ids):
        block = Block(BlockId(f"block-00000000-0000-4000-8000-{number:012d}"), "human", "v" * 10_000, 1, 1)
        blocks.insert(tx, (block,), Author(AuthorKind.user))
        attachments.attach(tx, agent_id, block.id)

    def shown(after: AgentId | None, before: AgentId | None, *, descending: bool = False) -> list[int]:
        page = Page(10, after, before, descending, bytes_max=30_000)
        found = agents.select_agents(tx, OURS, AgentQuery(page))
        views = agent_views.page(tx, found, Include(blocks=True), page, Keyring())
        return [ids.index(view.agent.id) for view in views]

    nobody = AgentId("agent-00000000-0000-4000-8000-00000000dead")  # a cursor that names no agent is ignored
    assert shown(None, None) == shown(None, nobody) == shown(nobody, nobody) == [0, 1]
    assert shown(None, ids[4]) == shown(nobody, ids[4]) == [2, 3]
    assert shown(ids[0], ids[4]) == shown(ids[0], nobody) == [1, 2]
    assert shown(None, ids[0], descending=True) == [2, 1]
    assert shown(None, nobody, descending=True) == [4, 3]
    assert shown(None, ids[0]) == []
