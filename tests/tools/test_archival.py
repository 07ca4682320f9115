"""Archival memory by tool: what is put away is found again, by this agent only."""

import json
from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.search.queries import LikelyItems, NearItems
from kelpie.storage.archives import archives
from kelpie.tools.calls.interface import Precomputed
from tests.tools.workshop import ANN, BEN, NOW, Workshop

DAY = 86_400_000_000


def search(shop: Workshop, **arguments: Any) -> list[dict[str, Any]]:
    found = json.loads(shop.run("archival_memory_search", **arguments).text)
    assert found["search_mode"] == "full_text"
    return found["results"]


def test_what_is_stored_is_found_again(shop: Workshop) -> None:
    outcome = shop.run("archival_memory_insert", content="Bob likes penguins", tags=["b", "a", "b"])
    (result,) = search(shop, query="penguin")
    assert result["id"] in outcome.text
    assert (result["content"], result["tags"]) == ("Bob likes penguins", ["a", "b"])
    assert result["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert result["relevance"]["score"] > 0


def test_an_agent_has_one_archive_of_its_own(shop: Workshop) -> None:
    assert search(shop, query="tea") == [], "no archive yet"
    for _ in range(2):
        shop.run("archival_memory_insert", content="tea")
    shop.run("archival_memory_insert", by=BEN, content="tea of Ben")
    assert [r["content"] for r in search(shop, query="tea")] == ["tea", "tea"]
    assert [r["content"] for r in search(shop, by=BEN, query="tea")] == ["tea of Ben"]
    assert archives.archive_of(shop.tx, ANN) != archives.archive_of(shop.tx, BEN)


def test_tags_dates_and_number(shop: Workshop) -> None:
    for day, tags in enumerate((["x"], ["x", "y"], ["y"])):
        shop.run("archival_memory_insert", now=NOW + day * DAY, content=f"tea {day}", tags=tags)

    def found(**arguments: Any) -> list[str]:
        return sorted(r["content"] for r in search(shop, **({"query": "tea"} | arguments)))

    assert found(tags=["x", "y"]) == ["tea 0", "tea 1", "tea 2"]
    assert found(tags=["x", "y"], tag_match_mode="all") == ["tea 1"]
    assert found(start_datetime="2023-11-15", end_datetime="2023-11-15") == ["tea 1"]
    assert len(found(top_k=2)) == 2
    assert [r["content"] for r in search(shop, query="", top_k=1)] == ["tea 2"]


def test_tags_are_bounded(shop: Workshop) -> None:
    many = [str(number) for number in range(1001)]
    for name, arguments in (("archival_memory_insert", {"content": "x"}), ("archival_memory_search", {"query": "x"})):
        with pytest.raises(ToolError, match="1001 entries; give at most 1000"):
            shop.run(name, **arguments, tags=many)
        shop.run(name, **arguments, tags=many[1:])


def test_what_was_near_is_shown_only_while_it_is_the_agents_own(shop: Workshop) -> None:
    """What is near is found before the commit; the agent may have been given another archive since."""
    shop.run("archival_memory_insert", content="tea of Ann")
    shop.run("archival_memory_insert", by=BEN, content="coffee of Ben")
    near = {by: search(shop, by=by, query="")[0]["id"] for by in (ANN, BEN)}
    near_items = NearItems({"model": LikelyItems([(shop.number(each), 0.9) for each in near.values()])})
    precomputed = Precomputed(passages=near_items, by_vectors=True)
    found = json.loads(shop.run("archival_memory_search", query="drinks", precomputed=precomputed).text)
    assert found["search_mode"] == "hybrid" and [r["content"] for r in found["results"]] == ["tea of Ann"]


def test_pages(shop: Workshop) -> None:
    for number in range(120):
        shop.run("archival_memory_insert", now=NOW + number, content=f"tea {number}")
    for query in ("tea", ""):
        pages = [search(shop, query=query, top_k=50, page=page) for page in range(4)]
        assert [len(page) for page in pages] == [50, 50, 20, 0]
        assert len({result["id"] for page in pages for result in page}) == 120
    with pytest.raises(ToolError, match="'page' must be from 0"):
        search(shop, query="tea", page=101)


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("archival_memory_insert", {"content": "  \x00"}, "Nothing was stored: 'content' is empty"),
        ("archival_memory_insert", {"content": "x" * 100_001}, "the limit is 100000"),
        ("archival_memory_insert", {"content": "x", "tags": "no list"}, "must be a list"),
        ("archival_memory_search", {"query": "x", "start_datetime": "soon"}, "'start_datetime' is not a date"),
        ("archival_memory_search", {"query": "x", "top_k": 0}, "'top_k' must be from 1"),
        ("archival_memory_search", {"query": "x", "tag_match_mode": "some"}, "must be one of"),
    ],
)
def test_a_failure_says_why_and_writes_nothing(
    shop: Workshop, tool: str, arguments: dict[str, Any], problem: str
) -> None:
    before = shop.everything()
    with pytest.raises(ToolError, match=problem):
        shop.run(tool, **arguments)
    assert shop.everything() == before


def test_a_damaged_passage_is_left_out(shop: Workshop) -> None:
    for text in ("tea is warm", "tea is cold"):
        shop.run("archival_memory_insert", content=text)
    shop.tx.exec_driver_sql("UPDATE passages SET text = 'tea is bold' WHERE text = 'tea is cold'")
    assert [result["content"] for result in search(shop, query="tea")] == ["tea is warm"]
    assert [result["content"] for result in search(shop, query="")] == ["tea is warm"]
