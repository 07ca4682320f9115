"""Archives as rows: one per agent, shared by many, and nothing left over when one goes."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, ArchiveId, OrganizationId, PassageId
from kelpie.core.memory.passages import Archive, ArchiveQuery, Passage, PassageQuery
from kelpie.core.paging import Page
from kelpie.storage.agents import agents
from kelpie.storage.agents import removal as agent_removal
from kelpie.storage.archives import archives, passage_search, passages
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.integrity.search_index_checks import wrongs
from kelpie.storage.rows.piece_size import BYTES_MAX
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
OURS, THEIRS = DEFAULT_ORGANIZATION, OrganizationId("org-00000000-0000-4000-8000-000000000009")
FULL = Archive(
    ArchiveId("archive-00000000-0000-4000-8000-000000000007"),
    "notes",
    5,
    6,
    description="d",
    embedding="fake/embed",
    embedding_chunk_size=17,
    metadata={"k": [1]},
    organization_id=OURS,
    created_by_id="user-1",
    last_updated_by_id="user-2",
)


def archive_id(number: int) -> ArchiveId:
    return ArchiveId(f"archive-00000000-0000-4000-8000-{number:012}")


def fill(tx: Tx, archive: ArchiveId, first: int = 1, organization: OrganizationId = OURS) -> None:
    for number in range(first, first + 3):
        key = PassageId(f"passage-00000000-0000-4000-8000-{number:012}")
        tags = ("t", f"t{number}")
        passages.insert(
            tx, Passage(key, archive, f"apple {number}", number, number, tags, organization_id=organization)
        )


def left(tx: Tx) -> dict[str, int]:
    """How many rows there are of everything that belongs to an archive."""
    tables = ("archives", "agent_archives", "passages", "passage_tags", "search_items", "search_segments")
    return {name: tx.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables}


def stored_bytes(tx: Tx) -> int:
    return tx.execute(text("SELECT coalesce(sum(length(text)), 0) FROM passages")).scalar_one()


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ANN, BEN):
            model = ModelChoice("kelpie/demo", 8000)
            made = Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", model, 1, 1, created_by_id="user-3")
            agents.create(connection, made)
        yield connection


def test_every_field_is_read_back(tx: Tx) -> None:
    archives.insert(tx, FULL)
    assert archives.get(tx, OURS, FULL.id) == FULL
    assert archives.get_many(tx, OURS, [FULL.id, archive_id(99)]) == {FULL.id: FULL}


def test_only_name_description_and_model_change(tx: Tx) -> None:
    archives.insert(tx, FULL)
    changed = archives.update(tx, OURS, FULL.id, {"name": "new", "embedding": "a/b", "created_at": 3}, 9, "user-4")
    assert (changed.name, changed.description, changed.embedding) == ("new", "d", "a/b")
    assert (changed.created_at, changed.updated_at) == (5, 9)
    assert (changed.created_by_id, changed.last_updated_by_id) == ("user-1", "user-4")
    assert archives.update(tx, OURS, FULL.id, {}, 10, "user-5") == changed


def test_what_belongs_to_others_is_not_there(tx: Tx) -> None:
    archives.insert(tx, FULL)
    for call in (
        lambda: archives.get(tx, THEIRS, FULL.id),
        lambda: archives.update(tx, THEIRS, FULL.id, {"name": "x"}, 9, "user-4"),
        lambda: archive_removal.delete(tx, THEIRS, FULL.id),
        lambda: archives.select(tx, THEIRS, ArchiveQuery(Page(after=FULL.id))),
    ):
        with pytest.raises(NotFound, match="Archive"):
            call()
    assert archives.get_many(tx, THEIRS, [FULL.id]) == {}
    assert archives.select(tx, THEIRS, ArchiveQuery()) == []
    assert archives.get(tx, OURS, FULL.id) == FULL


def test_the_list_has_filters_and_pages_both_ways(tx: Tx) -> None:
    for number in range(1, 6):
        archives.insert(tx, Archive(archive_id(number), f"a{number % 2}", number, number))
    archives.attach(tx, ANN, archive_id(3))

    def ids(query: ArchiveQuery) -> list[int]:
        return [archive.created_at for archive in archives.select(tx, OURS, query)]

    assert ids(ArchiveQuery()) == [5, 4, 3, 2, 1]
    assert ids(ArchiveQuery(name="a0")) == [4, 2]
    assert ids(ArchiveQuery(agent_id=ANN)) == [3]
    assert ids(ArchiveQuery(name="a0", agent_id=ANN)) == []
    assert ids(ArchiveQuery(Page(limit=2, after=archive_id(4)))) == [3, 2]
    assert ids(ArchiveQuery(Page(limit=2, before=archive_id(2)))) == [4, 3]
    assert ids(ArchiveQuery(Page(limit=2, after=archive_id(2), descending=False))) == [3, 4]
    with pytest.raises(NotFound, match="bogus"):
        ids(ArchiveQuery(Page(before="bogus")))


def test_an_agent_has_one_archive_and_an_archive_many_agents(tx: Tx) -> None:
    for number in (1, 2):
        archives.insert(tx, Archive(archive_id(number), "a", 1, 1))
    for agent_id in (ANN, BEN, BEN):
        archives.attach(tx, agent_id, archive_id(1))
    with pytest.raises(Conflict, match="detach"):
        archives.attach(tx, ANN, archive_id(2))
    assert archives.agents_page(tx, DEFAULT_ORGANIZATION, archive_id(1), Page(descending=False)) == [ANN, BEN]
    archives.detach(tx, ANN, archive_id(2))
    assert archives.archive_of(tx, ANN) == archive_id(1), "another one is no reason to part"
    archives.detach(tx, ANN, archive_id(1))
    archives.detach(tx, ANN, archive_id(1))
    assert archives.archive_of(tx, ANN) is None
    assert archives.archive_of(tx, BEN, OURS) == archive_id(1)
    assert archives.archive_of(tx, BEN, THEIRS) is None
    archives.attach(tx, ANN, archive_id(2))
    assert archives.ensure(tx, ANN, archive_id(3), 9) == archive_id(2), "what is attached is written to"


def test_what_is_made_by_itself_takes_after_its_agent(tx: Tx) -> None:
    agents.update_agent(tx, ANN, {"embedding": "fake/embed", "embedding_chunk_size": 44}, 2)
    made = archives.get(tx, OURS, archives.ensure(tx, ANN, archive_id(1), 7))
    assert (made.name, made.embedding, made.embedding_chunk_size) == ("Ann's archive", "fake/embed", 44)
    assert (made.description, made.created_at, made.created_by_id) == (archives.AUTOMATIC, 7, "user-3")


def test_a_deleted_archive_leaves_nothing(tx: Tx) -> None:
    for number in (1, 2):
        archives.insert(tx, Archive(archive_id(number), "a", 1, 1))
        fill(tx, archive_id(number), first=number * 10)
    archives.attach(tx, ANN, archive_id(1))
    archive_removal.delete(tx, OURS, archive_id(1))
    assert left(tx) == {
        "archives": 1, "agent_archives": 0, "passages": 3, "passage_tags": 6, "search_items": 3, "search_segments": 0,
    }  # fmt: skip
    assert len(passage_search.search(tx, OURS, PassageQuery("apple", 50))) == 3


@pytest.mark.parametrize("shared", [False, True])
def test_an_agents_own_archive_goes_with_it_unless_it_is_shared(tx: Tx, shared: bool) -> None:
    archives.ensure(tx, ANN, archive_id(1), 1)
    fill(tx, archive_id(1))
    if shared:
        archives.attach(tx, BEN, archive_id(1))
    archive_removal.remove_owned(tx, ANN)
    agent_removal.remove(tx, ANN, 0)
    rest = left(tx)
    if shared:
        assert rest["passages"] == rest["search_items"] == 3 and rest["agent_archives"] == 1
    else:
        assert set(rest.values()) == {0}


def test_an_attached_archive_outlives_its_agents(tx: Tx) -> None:
    archives.insert(tx, FULL)
    archives.attach(tx, ANN, FULL.id)
    archive_removal.remove_owned(tx, ANN)
    agent_removal.remove(tx, ANN, 0)
    assert archives.get(tx, OURS, FULL.id) == FULL
    assert left(tx)["agent_archives"] == 0


def test_a_search_of_the_organisation_sees_no_other(tx: Tx) -> None:
    for number, organization in ((1, OURS), (2, THEIRS)):
        archives.insert(tx, Archive(archive_id(number), "a", 1, 1, organization_id=organization))
        fill(tx, archive_id(number), first=number * 10, organization=organization)

    def found(organization: OrganizationId, **fields: object) -> list[int]:
        query = PassageQuery(**fields)  # pyright: ignore[reportArgumentType]
        return [each.passage.created_at for each in passage_search.search(tx, organization, query)]

    assert sorted(found(OURS, text="apple")) == [10, 11, 12]
    assert sorted(found(THEIRS, text="apple")) == [20, 21, 22]
    assert found(OURS, text="apple", limit=1, tags=("t12",)) == [12]
    assert found(OURS, oldest_first=True) == [10, 11, 12]
    assert found(THEIRS, limit=2) == [22, 21]
    assert found(OURS, tags=("t", "t11"), match_all_tags=True) == [11]
    assert found(OURS, tags=("t20",)) == []
    assert found(OURS, text="apple", since=11, until=11, tags=("t",)) == [11]


def test_a_part_of_the_text_means_itself(tx: Tx) -> None:
    archives.insert(tx, FULL)
    for number, said in enumerate(("100% Grün", "1000 green", "a_b", "axb"), 1):
        passages.insert(
            tx, Passage(PassageId(f"passage-00000000-0000-4000-8000-{number:012}"), FULL.id, said, number, 1)
        )

    def found(part: str) -> list[str]:
        return [p.text for p in passages.select(tx, FULL.id, Page(descending=False), part)]

    assert found("0%") == ["100% Grün"]
    assert found("A_B") == ["a_b"]
    assert found("Grün") == ["100% Grün"]
    assert found("GREEN") == ["1000 green"]
    assert found("\\") == []


def test_a_large_archive_is_gone_at_once_and_swept_up_in_pieces(tx: Tx) -> None:
    large, small = archive_id(1), archive_id(2)
    for one in (large, small):
        archives.insert(tx, Archive(one, "a", 1, 1))
    archives.attach(tx, ANN, large)
    number = archive_removal.ROWS_MAX * 2 + 10
    key = "passage-00000000-0000-4000-8000-{:012}".format
    passages.insert_many(tx, [Passage(PassageId(key(n)), large, f"apple {n}", n, n, ("t",)) for n in range(number)])
    passages.insert_many(tx, [Passage(PassageId(key(900 + n)), large, "x" * 600_000, n, n) for n in range(3)])
    passages.insert(tx, Passage(PassageId(key(number)), small, "apple kept", 1, 1))
    archive_removal.delete(tx, OURS, large)
    assert left(tx)["passages"] == number + 4, "the rest comes later"
    for call in (
        lambda: archives.get(tx, OURS, large),
        lambda: archives.require(tx, OURS, large),
        lambda: archive_removal.delete(tx, OURS, large),
        lambda: archives.select(tx, OURS, ArchiveQuery(Page(after=large))),
    ):
        with pytest.raises(NotFound):
            call()
    assert [archive.id for archive in archives.select(tx, OURS, ArchiveQuery())] == [small]
    assert archives.archive_of(tx, ANN) is None
    for query in (PassageQuery("apple", 50), PassageQuery("", 50)):
        assert [each.passage.text for each in passage_search.search(tx, OURS, query)] == ["apple kept"]
    rounds = 0
    while archive_removal.needs_cleanup(tx):
        before, size = left(tx), stored_bytes(tx)
        archive_removal.clean_up(tx)
        after = left(tx)
        assert before["search_items"] - after["search_items"] <= archive_removal.ROWS_MAX
        assert before["passages"] - after["passages"] <= archive_removal.ROWS_MAX
        assert size - stored_bytes(tx) <= BYTES_MAX
        assert after["passages"] == before["passages"] or after["search_items"] == 1, "search entries go first"
        assert wrongs(lambda statement: [tuple(row) for row in tx.execute(text(statement))]) == {}
        rounds += 1
    assert rounds >= 6
    archive_removal.clean_up(tx)
    assert left(tx) == {
        "archives": 1, "agent_archives": 0, "passages": 1, "passage_tags": 0, "search_items": 1, "search_segments": 0,
    }  # fmt: skip
