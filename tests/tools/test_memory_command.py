"""The `memory` and `memory_apply_patch` tools: several kinds of edit behind one name, all of them or none."""

from typing import Any

import pytest

from kelpie.core.errors import CallerError, ToolError
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks import blocks
from tests.tools.workshop import ANN, BEN, Workshop


def labels(shop: Workshop, agent: Any = ANN) -> list[str]:
    return sorted(b.label for b in block_attachments.of_agent(shop.tx, agent))


def test_create(shop: Workshop) -> None:
    outcome = shop.run("memory", command="create", path="/memories/notes", description="Notes", file_text="one\ttwo")
    block = block_attachments.by_label(shop.tx, ANN, "notes")
    assert block is not None
    assert (block.value, block.description, outcome.touched) == ("one     two", "Notes", (ANN,))
    with pytest.raises(ToolError, match="already have"):
        shop.run("memory", command="create", path="/memories/notes", description="again")
    shop.run("memory", command="create", path="empty", description="nothing yet")
    assert shop.value("empty") == ""


def test_str_replace_and_insert(shop: Workshop) -> None:
    shop.give("notes", "tea\nmilk", ANN, BEN)
    done = shop.run("memory", command="str_replace", path="/memories/notes", old_string="tea", new_string="coffee")
    assert (done.text, done.touched) == ("coffee\nmilk", (ANN, BEN))
    done = shop.run("memory", command="insert", path="/memories/notes", insert_line=1, insert_text="sugar")
    assert done.text == "coffee\nsugar\nmilk" == shop.value("notes", BEN)
    assert shop.run("memory", command="insert", path="notes", insert_text="end").text.endswith("milk\nend")


def test_delete_only_detaches(shop: Workshop) -> None:
    block = shop.give("notes", "tea", ANN, BEN)
    outcome = shop.run("memory", command="delete", path="/memories/notes")
    assert outcome.touched == (ANN,)
    assert labels(shop) == [] and labels(shop, BEN) == ["notes"]
    assert blocks.get(shop.tx, block.id).value == "tea"


def test_rename_moves_the_label_for_everyone_and_edits_descriptions(shop: Workshop) -> None:
    shop.give("notes", "tea", ANN, BEN)
    outcome = shop.run("memory", command="rename", old_path="/memories/notes", new_path="/memories/diary")
    assert outcome.touched == (ANN, BEN)
    assert labels(shop) == labels(shop, BEN) == ["diary"]
    shop.run("memory", command="rename", path="/memories/diary", description="Every day")
    block = block_attachments.by_label(shop.tx, ANN, "diary")
    assert block is not None and (block.description, block.value) == ("Every day", "tea")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": "view"}, "is not a command"),
        ({"command": "create", "path": "/memories/x"}, "needs description"),
        ({"command": "create", "description": "x"}, "needs path"),
        ({"command": "create", "path": "/memories/", "description": "x"}, "is not the path of a memory block"),
        ({"command": "create", "path": "a b", "description": "x"}, "is not a valid label"),
        ({"command": "str_replace", "path": "/memories/notes", "old_string": "tea"}, "needs new_string"),
        ({"command": "str_replace", "path": "zz", "old_string": "tea", "new_string": ""}, "Your blocks: notes, ro"),
        ({"command": "insert", "path": "/memories/notes"}, "needs insert_text"),
        ({"command": "insert", "path": "/memories/ro", "insert_text": "x"}, "read-only"),
        ({"command": "delete"}, "needs path"),
        ({"command": "delete", "path": "/memories/ro"}, "read-only"),
        ({"command": "delete", "path": "/memories/none"}, "no memory block 'none'"),
        ({"command": "rename", "path": "/memories/notes"}, "needs description"),
        ({"command": "rename", "old_path": "/memories/notes"}, "needs new_path"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/ro"}, "'ro'"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "a b"}, "is not a valid label"),
        ({"command": "rename", "path": "/memories/ro", "description": "x"}, "read-only"),
    ],
)
def test_a_failing_command_says_why_and_writes_nothing(shop: Workshop, arguments: dict[str, Any], problem: str) -> None:
    shop.give("notes", "tea")
    shop.give("ro", "fixed", read_only=True)
    before = shop.everything()
    with pytest.raises((ToolError, CallerError), match=problem):
        shop.run("memory", **arguments)
    assert shop.everything() == before


def test_a_patch_of_one_block(shop: Workshop) -> None:
    shop.give("notes", "tea\nmilk", ANN, BEN)
    outcome = shop.run("memory_apply_patch", label="notes", patch="@@ -1,2 +1,2 @@\n tea\n-milk\n+oat milk\n")
    assert (outcome.text, outcome.touched) == ("tea\noat milk", (ANN, BEN))
    assert shop.value("notes", BEN) == "tea\noat milk"


def test_a_patch_of_many_blocks(shop: Workshop) -> None:
    shop.give("notes", "tea", ANN, BEN)
    shop.give("scratch", "x")
    patch = """*** Add Block: todo
Description: to do
+call Bob
*** Add Block: done
+nothing
*** Update Block: notes
*** Move to: drinks
Description: what we drink
-tea
+coffee
*** Delete Block: scratch
"""
    outcome = shop.run("memory_apply_patch", label="-", patch=patch)
    assert set(outcome.touched) == {ANN, BEN}
    assert labels(shop) == ["done", "drinks", "todo"]
    assert labels(shop, BEN) == ["drinks"]
    drinks, todo = (block_attachments.by_label(shop.tx, ANN, label) for label in ("drinks", "todo"))
    assert drinks is not None and (drinks.value, drinks.description) == ("coffee", "what we drink")
    assert todo is not None and (todo.value, todo.description) == ("call Bob", "to do")


def test_a_patch_that_fails_half_way_leaves_nothing_behind(shop: Workshop) -> None:
    shop.give("notes", "tea")
    shop.give("ro", "fixed", read_only=True)
    before = shop.everything()
    for ending in ("*** Update Block: ro\n-fixed\n+x", "*** Delete Block: none", "*** Add Block: notes\n+x"):
        savepoint = shop.tx.begin_nested()
        with pytest.raises(ToolError):
            shop.run("memory_apply_patch", label="-", patch=f"*** Update Block: notes\n-tea\n+x\n{ending}")
        savepoint.rollback()  # what the loop does with every failed call
        assert shop.everything() == before
