"""The tools of the voice types: filing parts of a transcript, and searching within a span of minutes."""

import json
from typing import Any

import pytest

from kelpie.core.conversations.messages import Role
from kelpie.core.errors import ToolError
from kelpie.core.ids import AgentId
from kelpie.core.memory.passages import PASSAGE_CHARS_MAX, PassageQuery
from kelpie.storage.archives import archives, passage_search
from kelpie.tools.builtin.voice import CHUNKS_MAX
from tests.tools.test_conversation import say
from tests.tools.workshop import ANN, BEN, NOW, Workshop

MINUTE = 60_000_000


def chunk(start: int, end: int, context: str = "about it") -> dict[str, Any]:
    return {"start_index": start, "end_index": end, "context": context}


def filed(shop: Workshop, agent_id: AgentId = ANN) -> list[str]:
    archive = archives.archive_of(shop.tx, agent_id)
    if archive is None:
        return []
    return sorted(each.passage.text for each in passage_search.search(shop.tx, archive, PassageQuery(limit=200)))


def test_ranges_of_the_newest_message_are_filed_with_what_they_are_about(shop: Workshop) -> None:
    say(shop, 1, Role.user, "an older transcript")
    say(shop, 2, Role.user, "zero\none\ntwo\nthree")
    say(shop, 3, Role.assistant, "not the transcript")
    outcome = shop.run("store_memories", chunks=[chunk(0, 0, "first"), chunk(1, 3, "rest")])
    assert outcome.ok and "2" in outcome.text
    assert filed(shop) == ["first\n\nzero", "rest\n\none\ntwo\nthree"]
    found = json.loads(shop.run("archival_memory_search", query="three", tags=["transcript"]).text)["results"]
    assert [result["content"] for result in found] == ["rest\n\none\ntwo\nthree"]
    assert filed(shop, BEN) == []


@pytest.mark.parametrize("mark", ["{}. ", "({}) ", "[{}] ", "{}: ", " {}→ "])
def test_lines_that_carry_numbers_are_found_by_them(shop: Workshop, mark: str) -> None:
    lines = "\n".join(mark.format(n) + text for n, text in ((7, "seven"), (8, "eight"), (9, "nine")))
    say(shop, 1, Role.user, f"Here is the transcript\n{lines}")
    shop.run("store_memories", chunks=[chunk(8, 9)])
    assert filed(shop) == [f"about it\n\n{mark.format(8)}eight\n{mark.format(9)}nine"]


@pytest.mark.parametrize(
    ("chunks", "word"),
    [
        ([chunk(0, 9)], "lines 0 to 1"),
        ([chunk(1, 0)], "1 to 0 is not a valid range"),
        ([chunk(-1, 0)], "-1 to 0 is not a valid range"),
        ([chunk(0, 1), chunk(0, 1, " ")], "context"),
        ([chunk(0, 0)] * (CHUNKS_MAX + 1), str(CHUNKS_MAX)),
        ([chunk(0, 0, "x" * PASSAGE_CHARS_MAX)], "Split the range"),
        ([{"start_index": 0, "end_index": 1}], "context"),
    ],
)
def test_what_cannot_be_filed(shop: Workshop, chunks: list[dict[str, Any]], word: str) -> None:
    say(shop, 1, Role.user, "zero\none")
    with pytest.raises(ToolError, match=word):
        shop.run("store_memories", chunks=chunks)


def test_without_a_transcript_nothing_is_filed(shop: Workshop) -> None:
    say(shop, 1, Role.user, "of another agent", agent_id=BEN)
    with pytest.raises(ToolError, match="not received a transcript"):
        shop.run("store_memories", chunks=[chunk(0, 0)])


def test_rethink_user_memory_writes_the_block_about_the_person(shop: Workshop) -> None:
    assert shop.run("rethink_user_memory", new_memory="Bob").text == "Bob" == shop.value("human")
    shop.run("rethink_user_memory", new_memory="Bob, who sails")
    assert shop.value("human") == "Bob, who sails" and shop.value("human", BEN) is None
    with pytest.raises(ToolError, match="line numbers"):
        shop.run("rethink_user_memory", new_memory="1→ Bob")


def test_rethink_memory_is_memory_rethink_under_older_names(shop: Workshop) -> None:
    shop.give("notes", "old")
    assert shop.run("rethink_memory", new_memory="new", target_block_label="notes").text == "new"
    assert shop.run("rethink_memory", new_memory="made", target_block_label="more").text == "made"
    assert (shop.value("notes"), shop.value("more")) == ("new", "made")
    shop.give("locked", "x", read_only=True)
    with pytest.raises(ToolError, match="read-only"):
        shop.run("rethink_memory", new_memory="y", target_block_label="locked")


def test_finishing_says_nothing(shop: Workshop) -> None:
    assert shop.run("finish_rethinking_memory").text == shop.run("memory_finish_edits").text == "None"


def search(shop: Workshop, **arguments: Any) -> tuple[list[str], list[str]]:
    found = json.loads(shop.run("search_memory", **arguments).text)
    assert found["search_mode"] == "full_text"
    return [r["content"] for r in found["results"]], [r["content"] for r in found["archive"]]


def test_search_memory_looks_at_what_was_said_and_what_was_filed(shop: Workshop) -> None:
    say(shop, 1, Role.user, "apples and pears", NOW - 90 * MINUTE)
    say(shop, 2, Role.assistant, "apples it is", NOW - 10 * MINUTE)
    say(shop, 3, Role.user, "apples of Ben", NOW, agent_id=BEN)
    shop.run("archival_memory_insert", content="apples are red", now=NOW - 30 * MINUTE)
    said, archive = search(shop, convo_keyword_queries=["apples"])
    assert sorted(said) == ["apples and pears", "apples it is"] and archive == ["apples are red"]
    assert search(shop, convo_keyword_queries=["pears", "plums"]) == (["apples and pears"], [])
    assert search(shop) == (["apples it is", "apples and pears"], ["apples are red"])


@pytest.mark.parametrize(
    ("span", "said", "archive"),
    [
        ({"start_minutes_ago": 20}, ["old"], ["filed"]),
        ({"end_minutes_ago": 60}, ["new"], ["filed"]),
        ({"start_minutes_ago": 20, "end_minutes_ago": 60}, [], ["filed"]),
        ({"start_minutes_ago": 60, "end_minutes_ago": 20}, [], ["filed"]),
        ({"start_minutes_ago": 90, "end_minutes_ago": 90}, ["old"], []),
    ],
)
def test_a_span_of_minutes_narrows_the_search(
    shop: Workshop, span: dict[str, int], said: list[str], archive: list[str]
) -> None:
    say(shop, 1, Role.user, "old", NOW - 90 * MINUTE)
    say(shop, 2, Role.user, "new", NOW - 10 * MINUTE)
    shop.run("archival_memory_insert", content="filed", now=NOW - 30 * MINUTE)
    assert search(shop, **span) == (said, archive)


@pytest.mark.parametrize("minutes", [-1, 10**18])
def test_minutes_that_cannot_be(shop: Workshop, minutes: int) -> None:
    with pytest.raises(ToolError, match="end_minutes_ago"):
        shop.run("search_memory", end_minutes_ago=minutes)
