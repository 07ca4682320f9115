"""The tags of agents and blocks as one list, page by page."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block
from kelpie.core.paging import Page
from kelpie.storage.agents import agents
from kelpie.storage.blocks import blocks
from kelpie.storage.views import tags
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

OURS, THEIRS = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000009")
SOMEBODY = Author(AuthorKind.user)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        agent_id = AgentId("agent-00000000-0000-4000-8000-000000000001")
        model = ModelChoice("kelpie/demo", 8000)
        mine = Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", model, 1, 1, tags=("b", "d", "both"), hidden=True)
        agents.create(connection, mine)
        other = AgentId("agent-00000000-0000-4000-8000-000000000002")
        agents.create(connection, replace(mine, id=other, tags=("secret", "b"), organization_id=THEIRS))
        block = BlockId("block-00000000-0000-4000-8000-000000000001")
        blocks.insert(connection, (Block(block, "human", "v", 1, 1, tags=("a", "both", "x%y")),), SOMEBODY)
        yield connection


def listed(tx: Tx, part: str | None = None, **page: object) -> list[str]:
    return tags.select(tx, OURS, Page(**{"descending": False, **page}), part)  # pyright: ignore[reportArgumentType]


def test_tags_come_once_sorted_and_only_ours(tx: Tx) -> None:
    assert listed(tx) == ["a", "b", "both", "d", "x%y"]
    assert tags.select(tx, THEIRS, Page(descending=False), None) == ["b", "secret"]
    assert listed(tx, descending=True) == ["x%y", "d", "both", "b", "a"]


def test_pages_go_both_ways_and_any_text_is_a_cursor(tx: Tx) -> None:
    assert listed(tx, limit=2) == ["a", "b"]
    assert listed(tx, limit=2, after="b") == ["both", "d"]
    assert listed(tx, limit=2, before="d") == ["b", "both"]
    assert listed(tx, limit=2, after="d", descending=True) == ["both", "b"]
    assert listed(tx, limit=2, before="a", descending=True) == ["both", "b"]
    assert listed(tx, after="a", before="d") == ["b", "both"]
    assert listed(tx, after="bb") == ["both", "d", "x%y"]
    assert listed(tx, limit=None, after="zzz") == []


def test_a_part_means_itself(tx: Tx) -> None:
    assert listed(tx, "B") == ["b", "both"]
    assert listed(tx, "%") == ["x%y"]
    assert listed(tx, "_") == []
