"""Blocks as rows: what is written is read back, labels stay unique per agent, and every carrier hears of a change."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import Conflict, InvalidInput, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind, Change
from kelpie.core.memory.blocks import Block, BlockQuery
from kelpie.core.paging import Page
from kelpie.storage.agents import agents
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
SOMEBODY = Author(AuthorKind.user)


def block_id(number: int) -> BlockId:
    return BlockId(f"block-00000000-0000-4000-8000-{number:012}")


def block(number: int, label: str = "notes", value: str = "v") -> Block:
    return Block(block_id(number), label, value, number, number)


def change(at: int, by: str | None) -> Change:
    return Change(Author(AuthorKind.user, by), at, kept=100)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ANN, BEN):
            model = ModelChoice("kelpie/demo", 8000)
            agents.create(connection, Agent(agent_id, "a", AgentType.letta_v1_agent, "", model, 1, 1))
        yield connection


def labels(found: list[Block]) -> list[str]:
    return [b.label for b in found]


def select(tx: Tx, **filters: object) -> list[str]:
    query = BlockQuery(**{"page": Page(descending=False), **filters})  # pyright: ignore[reportArgumentType]
    return labels(blocks.select(tx, DEFAULT_ORGANIZATION, query))


def test_a_block_is_read_back_as_it_was_written(tx: Tx) -> None:
    full = Block(
        id=block_id(1),
        label="human",
        value="näme: Bob\n\t'quoted'",
        created_at=5,
        updated_at=6,
        limit=7,
        description="about Bob",
        read_only=True,
        metadata={"a": [1, {"b": None}]},
        tags=("x", "y"),
        hidden=True,
        project_id="p",
        template_name="t",
        is_template=True,
        template_id="ti",
        base_template_id="bt",
        deployment_id="d",
        entity_id="e",
        preserve_on_migration=True,
        created_by_id="user-1",
        last_updated_by_id="user-2",
        version=3,
    )
    blocks.insert(tx, (full,), SOMEBODY)
    assert blocks.get(tx, full.id) == full
    assert blocks.get(tx, full.id, lock=True) == full


def test_an_unknown_block_is_not_found(tx: Tx) -> None:
    for call in (blocks.get, blocks.delete):
        with pytest.raises(NotFound, match="Block"):
            call(tx, block_id(9))
    with pytest.raises(NotFound):
        blocks.update(tx, block_id(9), {"value": "x"}, change(9, None))


def test_a_real_change_raises_the_version_and_names_every_carrier(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    for agent_id in (BEN, ANN):
        block_attachments.attach(tx, agent_id, block_id(1))
    changes = {"value": "new", "tags": ("b", "a"), "metadata": {"k": 1}, "description": "d", "limit": 9}
    after, changed, affected = blocks.update(tx, block_id(1), changes, change(50, "user-1"))
    assert changed and affected == (ANN, BEN)
    assert after == blocks.get(tx, block_id(1))
    assert after == replace(
        block(1, value="new"),
        tags=("a", "b"),
        metadata={"k": 1},
        description="d",
        limit=9,
        updated_at=50,
        last_updated_by_id="user-1",
        version=2,
    )


def test_an_equal_update_changes_nothing(tx: Tx) -> None:
    blocks.insert(tx, (replace(block(1), tags=("a", "b")),), SOMEBODY)
    block_attachments.attach(tx, ANN, block_id(1))
    before = blocks.get(tx, block_id(1))
    same, changed, affected = blocks.update(tx, block_id(1), {"value": "v", "tags": ("b", "a")}, change(99, "user-1"))
    assert (same, changed, affected) == (before, False, (ANN,)), "who carries it may not have heard of it yet"
    assert blocks.get(tx, block_id(1)) == before


def test_fields_that_are_not_the_callers_are_refused(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    for name in ("id", "version", "created_at", "nonsense"):
        with pytest.raises(InvalidInput, match=name):
            blocks.update(tx, block_id(1), {name: 1}, change(9, None))


def test_tags_that_cannot_be_stored_are_refused(tx: Tx) -> None:
    with pytest.raises(InvalidInput, match="tags"):
        blocks.insert(tx, (replace(block(1), tags=("a\x1fb",)),), SOMEBODY)


def test_an_agent_has_one_block_of_a_label(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    blocks.insert(tx, (block(2),), SOMEBODY)
    assert block_attachments.attach(tx, ANN, block_id(1)) is True
    assert block_attachments.attach(tx, ANN, block_id(1)) is False
    with pytest.raises(Conflict, match="'notes'"):
        block_attachments.attach(tx, ANN, block_id(2))
    assert block_attachments.attach(tx, BEN, block_id(2)) is True
    assert [b.id for b in block_attachments.of_agent(tx, ANN)] == [block_id(1)]


def test_attaching_needs_both_ends(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    with pytest.raises(NotFound, match="Block"):
        block_attachments.attach(tx, ANN, block_id(9))
    with pytest.raises(NotFound, match="Agent"):
        block_attachments.attach(tx, AgentId("agent-00000000-0000-4000-8000-000000000099"), block_id(1))


def test_a_relabel_moves_the_attachments_along(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    block_attachments.attach(tx, ANN, block_id(1))
    blocks.update(tx, block_id(1), {"label": "diary"}, change(9, None))
    assert block_attachments.by_label(tx, ANN, "notes") is None
    moved = block_attachments.by_label(tx, ANN, "diary")
    assert moved is not None and moved.id == block_id(1)
    blocks.insert(tx, (block(2),), SOMEBODY)
    assert block_attachments.attach(tx, ANN, block_id(2)), "the old label is free again"


def test_a_relabel_onto_a_taken_label_changes_nothing(tx: Tx) -> None:
    for number, label in ((1, "notes"), (2, "diary")):
        blocks.insert(tx, (block(number, label),), SOMEBODY)
        block_attachments.attach(tx, ANN, block_id(number))
    with pytest.raises(Conflict, match="'diary'"):
        blocks.update(tx, block_id(1), {"label": "diary"}, change(9, None))
    assert labels(block_attachments.of_agent(tx, ANN)) == ["notes", "diary"]


def test_detach_and_delete(tx: Tx) -> None:
    blocks.insert(tx, (replace(block(1), tags=("t",)),), SOMEBODY)
    for agent_id in (ANN, BEN):
        block_attachments.attach(tx, agent_id, block_id(1))
    block_attachments.detach(tx, ANN, block_id(1))
    assert block_attachments.of_agent(tx, ANN) == []
    with pytest.raises(NotFound):
        block_attachments.detach(tx, ANN, block_id(1))
    assert blocks.delete(tx, block_id(1)) == (BEN,)
    assert block_attachments.of_agent(tx, BEN) == []
    blocks.insert(tx, (block(1),), SOMEBODY)
    assert blocks.get(tx, block_id(1)).tags == (), "the tags went with the block"


def test_replacing_the_blocks_of_an_agent(tx: Tx) -> None:
    for number, label in ((1, "a"), (2, "b"), (3, "c"), (4, "c")):
        blocks.insert(tx, (block(number, label),), SOMEBODY)
    block_attachments.attach(tx, ANN, block_id(1))
    block_attachments.replace_for_agent(tx, ANN, [block_id(3), block_id(2), block_id(3)])
    assert labels(block_attachments.of_agent(tx, ANN)) == ["b", "c"]
    with pytest.raises(Conflict):
        block_attachments.replace_for_agent(tx, ANN, [block_id(3), block_id(4)])


def test_blocks_of_many_agents_and_their_versions(tx: Tx) -> None:
    for number, label in ((1, "b"), (2, "a")):
        blocks.insert(tx, (block(number, label),), SOMEBODY)
    for number in (1, 2):
        block_attachments.attach(tx, ANN, block_id(number))
    nobody = AgentId("agent-00000000-0000-4000-8000-000000000099")
    assert block_attachments.of_agents(tx, [nobody, BEN, ANN]) == {
        nobody: [],
        BEN: [],
        ANN: block_attachments.of_agent(tx, ANN),
    }
    assert labels(block_attachments.of_agent(tx, ANN)) == ["b", "a"], "oldest first, not by label"
    blocks.update(tx, block_id(2), {"value": "x"}, change(9, None))
    assert (agents.versions(tx, ANN) or (0, {}))[1] == {block_id(1): 1, block_id(2): 2}


def test_agents_of_a_block_come_in_pages(tx: Tx) -> None:
    blocks.insert(tx, (block(1),), SOMEBODY)
    for agent_id in (ANN, BEN):
        block_attachments.attach(tx, agent_id, block_id(1))
    assert block_attachments.agents_page(tx, DEFAULT_ORGANIZATION, block_id(1), Page(limit=1, descending=False)) == [
        ANN
    ]
    assert block_attachments.agents_page(
        tx, DEFAULT_ORGANIZATION, block_id(1), Page(limit=1, descending=False, after=ANN)
    ) == [BEN]
    assert block_attachments.agents_page(tx, DEFAULT_ORGANIZATION, block_id(9), Page()) == []


def test_filters(tx: Tx) -> None:
    blocks.insert(tx, (replace(block(1, "plain", "50% off"), tags=("red", "big"), project_id="p"),), SOMEBODY)
    blocks.insert(
        tx,
        (replace(block(2, "odd_name", "500 off"), tags=("red",), description="Says Hello"),),
        Author(AuthorKind.user),
    )
    blocks.insert(tx, (replace(block(3, "oddXname"), is_template=True, template_name="tt"),), SOMEBODY)
    blocks.insert(tx, (replace(block(4, "secret"), hidden=True),), SOMEBODY)
    other = OrganizationId("org-00000000-0000-4000-8000-000000000009")
    blocks.insert(tx, (replace(block(5, "foreign"), organization_id=other),), SOMEBODY)
    block_attachments.attach(tx, ANN, block_id(1))
    block_attachments.attach(tx, BEN, block_id(1))
    block_attachments.attach(tx, BEN, block_id(2))

    assert select(tx) == ["plain", "odd_name", "oddXname"]
    assert select(tx, show_hidden=True)[-1] == "secret"
    assert blocks.count(tx, DEFAULT_ORGANIZATION, BlockQuery(show_hidden=True)) == 4
    assert select(tx, label="plain") == ["plain"]
    assert select(tx, name="tt") == ["oddXname"]
    assert select(tx, templates_only=True) == ["oddXname"]
    assert select(tx, project_id="p") == ["plain"]
    assert select(tx, label_search="d_n") == ["odd_name"], "_ is no wildcard"
    assert select(tx, value_search="0% o") == ["plain"], "% is no wildcard"
    assert select(tx, description_search="hello") == ["odd_name"]
    assert select(tx, tags=("red",)) == ["plain", "odd_name"]
    assert select(tx, tags=("red", "big", "red"), match_all_tags=True) == ["plain"]
    assert select(tx, tags=("big", "none")) == ["plain"]
    assert select(tx, connected_count_gt=1) == ["plain"]
    assert select(tx, connected_count_lt=1) == ["oddXname"]
    assert select(tx, connected_count_eq=(0, 2)) == ["plain", "oddXname"]
    assert select(tx, page=Page(limit=1, descending=True)) == ["oddXname"]
