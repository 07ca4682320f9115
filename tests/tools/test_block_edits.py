"""The tools that edit one block: what they write, what they answer, and that a failure writes nothing."""

from typing import Any

import pytest

from kelpie.core.errors import ToolError
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from tests.tools.workshop import ANN, BEN, NOW, Workshop


def test_append_adds_a_line(shop: Workshop) -> None:
    shop.give("human", "Name: Bob")
    outcome = shop.run("core_memory_append", label="human", content="name: Dora")
    assert outcome.text == "Name: Bob\nname: Dora" == shop.value("human")
    assert outcome.ok and outcome.touched == (ANN,)


def test_append_to_a_label_that_is_not_there_makes_the_block(shop: Workshop) -> None:
    outcome = shop.run("core_memory_append", label="plans", content="buy tea")
    assert outcome.text == "buy tea" == shop.value("plans")
    assert outcome.touched == (ANN,)
    assert shop.value("plans", BEN) is None
    shop.run("core_memory_append", label="plans", content="drink it")
    assert shop.value("plans") == "buy tea\ndrink it"
    block = block_attachments.by_label(shop.tx, ANN, "plans")
    assert block is not None and (block.version, block.last_updated_by_id) == (2, ANN)


def test_edits_of_a_shared_block_add_up_and_touch_everyone(shop: Workshop) -> None:
    shop.give("shared", "start", ANN, BEN)
    for by, word in ((ANN, "one"), (BEN, "two"), (ANN, "three")):
        outcome = shop.run("core_memory_append", by=by, label="shared", content=word)
        assert outcome.touched == (ANN, BEN)
    assert shop.value("shared", BEN) == "start\none\ntwo\nthree"


def test_replace_changes_every_occurrence(shop: Workshop) -> None:
    shop.give("human", "tea, more tea")
    outcome = shop.run("core_memory_replace", label="human", old_content="tea", new_content="milk")
    assert outcome.text == "milk, more milk" == shop.value("human")


def test_memory_replace_wants_one_occurrence(shop: Workshop) -> None:
    shop.give("human", "a\tb\nc")
    assert shop.run("memory_replace", label="human", old_string="a\tb", new_string="x").text == "x\nc"
    assert shop.value("human") == "x\nc"


@pytest.mark.parametrize(
    ("line", "expected"), [(None, "1\n2\nnew"), (-1, "1\n2\nnew"), (0, "new\n1\n2"), (1, "1\nnew\n2")]
)
def test_memory_insert(shop: Workshop, line: int | None, expected: str) -> None:
    shop.give("human", "1\n2")
    assert shop.run("memory_insert", label="human", new_string="new", insert_line=line).text == expected
    assert shop.value("human") == expected


def test_memory_rethink_writes_anew_or_makes(shop: Workshop) -> None:
    shop.give("human", "old")
    assert shop.run("memory_rethink", label="human", new_memory="new").text == "new" == shop.value("human")
    shop.run("memory_rethink", label="fresh", new_memory="made")
    assert shop.value("fresh") == "made"


def test_finishing_changes_nothing(shop: Workshop) -> None:
    before = shop.everything()
    assert shop.run("memory_finish_edits").touched == ()
    assert shop.everything() == before


EDITS: list[tuple[str, dict[str, Any]]] = [
    ("core_memory_append", {"content": "x"}),
    ("core_memory_replace", {"old_content": "fixed", "new_content": "longer than it was"}),
    ("memory_replace", {"old_string": "fixed", "new_string": "longer than it was"}),
    ("memory_insert", {"new_string": "x"}),
    ("memory_rethink", {"new_memory": "longer than it was"}),
]


@pytest.mark.parametrize(("tool", "arguments"), EDITS)
def test_read_only_blocks_stay(shop: Workshop, tool: str, arguments: dict[str, Any]) -> None:
    shop.give("ro", "fixed", read_only=True)
    before = shop.everything()
    with pytest.raises(ToolError, match="'ro' is read-only"):
        shop.run(tool, label="ro", **arguments)
    assert shop.everything() == before


@pytest.mark.parametrize(("tool", "arguments"), EDITS)
def test_the_limit_is_kept_and_nothing_is_cut(shop: Workshop, tool: str, arguments: dict[str, Any]) -> None:
    shop.give("small", "fixed", limit=6)
    before = shop.everything()
    with pytest.raises(ToolError, match="its limit is 6"):
        shop.run(tool, label="small", **arguments)
    assert shop.everything() == before


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("core_memory_replace", {"old_content": "x", "new_content": ""}, "Your blocks: human"),
        ("memory_replace", {"old_string": "x", "new_string": ""}, "Your blocks: human"),
        ("memory_insert", {"new_string": "x"}, "Your blocks: human"),
        ("core_memory_append", {"label": "no spaces please", "content": "x"}, "is not a valid label"),
        ("core_memory_append", {"content": "x" * 100_001}, "its limit is 100000"),
        ("core_memory_replace", {"label": "human", "old_content": "zebra", "new_content": ""}, "does not occur"),
        ("memory_replace", {"label": "human", "old_string": "tea", "new_string": ""}, "lines 1, 2"),
        ("memory_replace", {"label": "human", "old_string": "1→ tea", "new_string": ""}, "line numbers"),
        ("memory_insert", {"label": "human", "new_string": "x", "insert_line": 9}, "There is no line 9"),
    ],
)
def test_a_failing_edit_says_why_and_writes_nothing(
    shop: Workshop, tool: str, arguments: dict[str, Any], problem: str
) -> None:
    shop.give("human", "tea\ntea")
    before = shop.everything()
    with pytest.raises(ToolError, match=problem):
        shop.run(tool, **{"label": "missing", **arguments})
    assert shop.everything() == before


def test_nul_never_reaches_the_database(shop: Workshop) -> None:
    shop.run("core_memory_append", label="new", content="a\x00b")
    assert shop.value("new") == "ab"


def test_every_edit_raises_the_version_and_the_time(shop: Workshop) -> None:
    block = shop.give("human", "tea")
    shop.run("memory_insert", now=NOW + 5, label="human", new_string="x")
    after = blocks.get(shop.tx, block.id)
    assert (after.version, after.updated_at) == (2, NOW + 5)
