"""Identities as rows: a key is there once, links vanish with either end."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import text

from kelpie.core.access.identities import Identity, IdentityQuery, IdentityType, Property, PropertyType, merged
from kelpie.core.agents.agent import Agent, AgentQuery, AgentType, ModelChoice
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, BlockId, IdentityId, OrganizationId
from kelpie.core.memory.block_history import Author, AuthorKind
from kelpie.core.memory.blocks import Block, BlockQuery
from kelpie.core.paging import Page
from kelpie.storage.agents import agents, identities
from kelpie.storage.agents import removal as agent_removal
from kelpie.storage.blocks import blocks
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
BLOCK = BlockId("block-00000000-0000-4000-8000-000000000001")
OURS, THEIRS = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000009")
SOMEBODY = Author(AuthorKind.user)


def identity_id(number: int) -> IdentityId:
    return IdentityId(f"identity-00000000-0000-4000-8000-{number:012}")


def identity(number: int, key: str | None = None, **fields: object) -> Identity:
    made = Identity(identity_id(number), key or f"k{number}", f"Name {number}", IdentityType.user, number, number)
    return replace(made, **fields)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ANN, BEN):
            model = ModelChoice("kelpie/demo", 8000)
            agents.create(connection, Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", model, 1, 1))
        blocks.insert(connection, (Block(BLOCK, "human", "v", 1, 1),), SOMEBODY)
        yield connection


def test_every_field_is_read_back(tx: Tx) -> None:
    facts = (
        Property("age", 30, PropertyType.number),
        Property("height", 1.5, PropertyType.number),
        Property("vip", True, PropertyType.boolean),
        Property("city", "Köln", PropertyType.string),
        Property("o", {"a": [1, None]}, PropertyType.json),
    )
    full = identity(1, properties=facts, project_id="p", created_by_id="u1", last_updated_by_id="u2")
    identities.insert(tx, full)
    assert identities.get(tx, OURS, full.id) == full
    assert identities.by_key(tx, OURS, "k1", "p") == full
    assert identities.by_key(tx, OURS, "k1", None) is None
    assert identities.by_key(tx, THEIRS, "k1", "p") is None
    changed = identities.update(tx, full, {"name": "New", "properties": facts[:1]}, 9, "u3")
    assert changed == replace(full, name="New", properties=facts[:1], updated_at=9, last_updated_by_id="u3")
    assert identities.update(tx, changed, {}, 10, "u4") == changed


def test_properties_are_merged_by_key() -> None:
    old = (Property("a", 1, PropertyType.number), Property("b", 2, PropertyType.number))
    new = (Property("b", 3, PropertyType.number), Property("c", 4, PropertyType.number))
    assert [(each.key, each.value) for each in merged(old, new)] == [("a", 1), ("b", 3), ("c", 4)]


def test_a_key_is_there_once_per_project_and_organisation(tx: Tx) -> None:
    identities.insert(tx, identity(1, "k"))
    identities.insert(tx, identity(2, "k", project_id="p"))
    identities.insert(tx, identity(3, "k", organization_id=THEIRS))
    for project in (None, "p"):
        with pytest.raises(Conflict, match="identifier_key"), tx.begin_nested():
            identities.insert(tx, identity(4, "k", project_id=project))
    identities.insert(tx, identity(5, "other"))
    with pytest.raises(Conflict, match="identifier_key"), tx.begin_nested():
        identities.update(tx, identity(5, "other"), {"identifier_key": "k"}, 9, "u")
    assert (identities.count(tx, OURS), identities.count(tx, THEIRS)) == (3, 1)


def test_what_belongs_to_others_is_not_there(tx: Tx) -> None:
    identities.insert(tx, identity(1))
    for call in (
        lambda: identities.get(tx, THEIRS, identity_id(1)),
        lambda: identities.delete(tx, THEIRS, identity_id(1)),
        lambda: identities.select(tx, THEIRS, IdentityQuery(Page(after=identity_id(1)))),
    ):
        with pytest.raises(NotFound, match="Identity"):
            call()
    with pytest.raises(Conflict, match="identity_ids"):
        identities.require_all(tx, THEIRS, [identity_id(1)])
    identities.require_all(tx, OURS, [identity_id(1)])
    assert identities.select(tx, THEIRS, IdentityQuery()) == []


def test_the_list_has_filters_and_pages_both_ways(tx: Tx) -> None:
    identities.insert(tx, identity(1, name="Ann 100%"))
    identities.insert(tx, identity(2, name="Anna", identity_type=IdentityType.org))
    identities.insert(tx, identity(3, name="Ben", project_id="p"))

    def found(**fields: object) -> list[int]:
        query = IdentityQuery(**fields)  # pyright: ignore[reportArgumentType]
        return [one.created_at for one in identities.select(tx, OURS, query)]

    assert found() == [3, 2, 1]
    assert found(name="ann") == [2, 1]
    assert found(name="0%") == [1]
    assert found(identifier_key="k2") == [2]
    assert found(identity_type=IdentityType.org) == [2]
    assert found(project_id="p") == [3]
    assert found(name="ann", identity_type=IdentityType.user) == [1]
    assert found(page=Page(limit=1, after=identity_id(3))) == [2]
    assert found(page=Page(limit=1, before=identity_id(1))) == [2]
    with pytest.raises(NotFound, match="bogus"):
        found(page=Page(after="bogus"))


def test_links_are_sets_and_filters_follow_them(tx: Tx) -> None:
    for number in (1, 2):
        identities.insert(tx, identity(number))
    identities.of_agents.add(tx, (ANN, BEN, ANN), (identity_id(1),))
    identities.of_agents.add(tx, (ANN,), (identity_id(1), identity_id(2)))
    identities.of_blocks.add(tx, (BLOCK,), (identity_id(2),))
    held = identities.of_agents.of_rows(tx, [ANN, BEN])
    assert {key: [one.created_at for one in value] for key, value in held.items()} == {ANN: [1, 2], BEN: [1]}

    def agents_with(**fields: object) -> list[str]:
        query = AgentQuery(**fields)  # pyright: ignore[reportArgumentType]
        return sorted(agent.id for agent in agents.select_agents(tx, OURS, query))

    def blocks_with(**fields: object) -> int:
        return len(blocks.select(tx, OURS, BlockQuery(**fields)))  # pyright: ignore[reportArgumentType]

    assert agents_with(identity_id=identity_id(2)) == [ANN]
    assert agents_with(identifier_keys=("k1",)) == [ANN, BEN]
    assert agents_with(identifier_keys=("k2", "unknown")) == [ANN]
    assert agents_with(identity_id=identity_id(9)) == agents_with(identifier_keys=("unknown",)) == []
    assert (blocks_with(identity_id=identity_id(2)), blocks_with(identity_id=identity_id(1))) == (1, 0)
    assert (blocks_with(identifier_keys=("k2",)), blocks_with(identifier_keys=("k1",))) == (1, 0)

    identities.of_agents.replace(tx, ANN, (identity_id(2),))
    assert agents_with(identity_id=identity_id(1)) == [BEN]
    identities.of_agents.replace_rows(tx, identity_id(1), (ANN,))
    assert agents_with(identity_id=identity_id(1)) == [ANN]
    identities.of_agents.change(tx, ANN, identity_id(1), attach=False)
    identities.of_agents.change(tx, ANN, identity_id(1), attach=False)
    assert agents_with(identity_id=identity_id(1)) == []


def test_links_vanish_with_either_end(tx: Tx) -> None:
    for number in (1, 2):
        identities.insert(tx, identity(number))
    identities.of_agents.add(tx, (ANN, BEN), (identity_id(1), identity_id(2)))
    identities.of_blocks.add(tx, (BLOCK,), (identity_id(1), identity_id(2)))

    def links() -> tuple[int, int]:
        counts = [
            tx.execute(text(f"SELECT count(*) FROM {name}_identities")).scalar_one() for name in ("agent", "block")
        ]
        return counts[0], counts[1]

    assert links() == (4, 2)
    identities.delete(tx, OURS, identity_id(1))
    assert links() == (2, 1)
    agent_removal.remove(tx, ANN, 0)
    blocks.delete(tx, BLOCK)
    assert links() == (1, 0)
    assert identities.get(tx, OURS, identity_id(2)).name == "Name 2"
