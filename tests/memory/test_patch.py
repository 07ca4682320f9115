"""Patches: every true diff applies, everything unclear is refused with the reason."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import ToolError
from kelpie.memory.patch import Add, Delete, Hunk, Update, apply, parse

some_lines = st.lists(
    st.sampled_from(["", "a", "b", "c", "-x", "+y", "@@", "*** End Patch", "--- a", " "]), max_size=12
)


def patched(value: str, patch: str) -> str:
    (change,) = parse(patch, "notes")
    assert isinstance(change, Update) and change.label == "notes"
    return apply(value, change.hunks)


@given(some_lines, some_lines, st.integers(0, 3))
def test_every_unified_diff_turns_the_old_text_into_the_new(old: list[str], new: list[str], context: int) -> None:
    # An empty text and a text of one empty line cannot be told apart by their lines.
    old = [] if old == [""] else old
    new = [] if new == [""] else new
    diff = "\n".join(difflib.unified_diff(old, new, "a", "b", lineterm="", n=context))
    if old != new:
        assert patched("\n".join(old), diff) == "\n".join(new)


def test_a_patch_needs_no_line_numbers() -> None:
    assert patched("tea\nmilk\nbread", " tea\n-milk\n+oat milk\n bread") == "tea\noat milk\nbread"
    assert patched("tea\nmilk\nbread", "@@\n-milk\n+oat milk\n@@\n-bread\n+rye") == "tea\noat milk\nrye"


def test_tabs_are_spaces_in_the_patch_as_in_the_block() -> None:
    assert patched("a\tb\n\tc".expandtabs(), " a\tb\n-\tc\n+\td") == "a\tb\n\td".expandtabs()


def test_wrong_line_numbers_do_no_harm() -> None:
    assert patched("tea\nmilk", "@@ -70,1 +70,1 @@\n-milk\n+oat milk\n") == "tea\noat milk"


def test_added_lines_alone_go_to_the_end() -> None:
    assert patched("tea", "+milk") == "tea\nmilk"
    assert patched("", "+milk") == "milk"


def test_equal_places_are_told_apart_by_the_claimed_line() -> None:
    assert patched("x\nsame\ny\nsame", "@@ -4,1 +4,1 @@\n-same\n+other") == "x\nsame\ny\nother"
    with pytest.raises(ToolError, match="matches 2 places"):
        patched("x\nsame\ny\nsame", "-same\n+other")


def test_a_hunk_after_another_is_looked_for_after_it() -> None:
    assert patched("a\nx\na", " a\n-x\n+y\n@@\n-a\n+b") == "a\ny\nb"


def test_lines_that_are_not_there_are_named() -> None:
    with pytest.raises(ToolError, match=r"Hunk 1 does not match.*'cheese'"):
        patched("tea\nmilk", "-cheese\n+x")
    with pytest.raises(ToolError, match="not together"):
        patched("tea\nmilk", "-milk\n-tea\n+x")


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("", "contains no changes"),
        (" only\n context", "contains no changes"),
        ("hello", "must start with"),
        ("-1→ tea", "line numbers"),
        ("words\n*** Delete Block: a", "text before its first header"),
        ("*** Add Block:\n+x", "has no block label"),
        ("*** Delete Block: a\n-x", "contains other lines"),
        ("*** Update Block: a", "contains no changes"),
        ("*** Add Block: a\n*** Move to: b\n+x", "cannot be renamed"),
        ("*** Add Block: a\nx", "must start with '\\+'"),
    ],
)
def test_what_is_no_patch_is_refused(patch: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        parse(patch, "notes")


def test_headers_name_the_blocks() -> None:
    patch = """*** Begin Patch
*** Add Block: todo
Description: what is left to do
+buy tea
+
+call Bob
*** Update Block: notes
*** Move to: archive/notes
Description: old notes
@@
-milk
+oat milk
*** Delete Block: scratch
*** End Patch
"""
    assert parse(patch, "ignored") == [
        Add("todo", "buy tea\n\ncall Bob", "what is left to do"),
        Update("notes", (Hunk(("milk",), ("oat milk",)),), "archive/notes", "old notes"),
        Delete("scratch"),
    ]
