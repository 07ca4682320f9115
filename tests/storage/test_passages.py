"""Archival memory as rows: one archive per agent, found by words, tags and dates, never across archives."""

from collections.abc import Iterator

import pytest

from kelpie.core.agents.agent import Agent, AgentType, ModelChoice
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ArchiveId, PassageId
from kelpie.core.memory.passages import Passage, PassageQuery
from kelpie.core.paging import Page
from kelpie.storage.agents import agents
from kelpie.storage.archives import archives, passage_search, passages
from kelpie.world.database import Tx
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema

ANN, BEN = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))
FIRST, SECOND = (ArchiveId(f"archive-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2))


def passage(number: int, text: str, archive: ArchiveId = FIRST, tags: tuple[str, ...] = ()) -> Passage:
    return Passage(PassageId(f"passage-00000000-0000-4000-8000-{number:012}"), archive, text, number, number, tags)


@pytest.fixture
def tx() -> Iterator[Tx]:
    with memory_connection() as connection:
        create_schema(connection)
        for agent_id in (ANN, BEN):
            model = ModelChoice("kelpie/demo", 8000)
            agents.create(connection, Agent(agent_id, "Ann", AgentType.letta_v1_agent, "", model, 1, 1))
        archives.ensure(connection, ANN, FIRST, 1)
        archives.ensure(connection, BEN, SECOND, 1)
        yield connection


def found(tx: Tx, text: str = "", **filters: object) -> list[str]:
    query = PassageQuery(text, **filters)  # pyright: ignore[reportArgumentType]
    return [each.passage.text for each in passage_search.search(tx, FIRST, query)]


def test_an_agent_gets_one_archive_and_keeps_it(tx: Tx) -> None:
    assert archives.archive_of(tx, ANN) == FIRST
    assert archives.ensure(tx, ANN, SECOND, 9) == FIRST
    nobody = AgentId("agent-00000000-0000-4000-8000-000000000099")
    assert archives.archive_of(tx, nobody) is None
    with pytest.raises(NotFound, match="Agent"):
        archives.ensure(tx, nobody, ArchiveId("archive-00000000-0000-4000-8000-000000000009"), 9)


def test_a_passage_is_read_back_and_goes_with_its_index(tx: Tx) -> None:
    full = Passage(passage(1, "").id, FIRST, "Roses are red", 5, 6, ("a", "b"), {"k": 1})
    passages.insert(tx, full)
    assert passages.select(tx, FIRST, Page()) == [full]
    assert found(tx, "roses") == ["Roses are red"]
    with pytest.raises(NotFound):
        passages.delete(tx, SECOND, full.id)
    passages.delete(tx, FIRST, full.id)
    assert found(tx, "roses") == []
    assert passages.select(tx, FIRST, Page()) == []
    with pytest.raises(NotFound):
        passages.delete(tx, FIRST, full.id)


def test_search_stays_in_its_archive(tx: Tx) -> None:
    passages.insert(tx, passage(1, "the sky is blue"))
    passages.insert(tx, passage(2, "the sky is grey", SECOND))
    assert found(tx, "sky") == ["the sky is blue"]
    assert found(tx) == ["the sky is blue"]


def test_filters_come_before_the_cut(tx: Tx) -> None:
    for number in range(1, 150):
        passages.insert(tx, passage(number, f"apple apple {number}", tags=("fruit",)))
    passages.insert(tx, passage(200, "one apple among many other things", tags=("fruit", "rare")))
    assert found(tx, "apple", limit=1, tags=("rare",)) == ["one apple among many other things"]
    assert found(tx, "apple", limit=1, since=200) == ["one apple among many other things"]
    assert found(tx, "", limit=1, until=1) == ["apple apple 1"]
    assert len(found(tx, "apple", limit=120)) == 120


def test_tags_dates_and_scores(tx: Tx) -> None:
    passages.insert(tx, passage(1, "red apple", tags=("a",)))
    passages.insert(tx, passage(2, "red pear", tags=("a", "b")))
    passages.insert(tx, passage(3, "red plum", tags=("b",)))
    assert set(found(tx, "red", tags=("a", "b"))) == {"red apple", "red pear", "red plum"}
    assert found(tx, "red", tags=("a", "b"), match_all_tags=True) == ["red pear"]
    assert found(tx, "", since=2, until=2) == ["red pear"], "both ends are included"
    assert found(tx) == ["red plum", "red pear", "red apple"], "newest first"
    assert all(each.hit is not None for each in passage_search.search(tx, FIRST, PassageQuery("red")))
    assert all(each.hit is None for each in passage_search.search(tx, FIRST, PassageQuery()))


def test_list_comes_in_pages(tx: Tx) -> None:
    for number in (1, 2, 3):
        passages.insert(tx, passage(number, str(number)))
    first = passages.select(tx, FIRST, Page(limit=2, descending=False))
    rest = passages.select(tx, FIRST, Page(limit=2, descending=False, after=first[-1].id))
    assert [p.text for p in first + rest] == ["1", "2", "3"]
