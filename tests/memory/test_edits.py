"""Edits of a block's text: what the memory tools promise, and that nothing is ever lost or cut."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import ToolError
from kelpie.memory import text_edits

texts = st.text(alphabet="ab \n", max_size=30)
lines = st.lists(st.text(alphabet="abc", max_size=3), max_size=8)


def test_append_joins_with_a_line_break() -> None:
    assert text_edits.append("Name: Bob", "name: Dora") == "Name: Bob\nname: Dora"
    assert text_edits.append("", "first") == "first"


@given(texts, texts)
def test_append_keeps_both_texts(value: str, content: str) -> None:
    assert text_edits.append(value, content).startswith(value)
    assert text_edits.append(value, content).endswith(content)


def test_replace_all_changes_every_occurrence() -> None:
    assert text_edits.replace_all("a-b-a", "a", "c") == "c-b-c"


@pytest.mark.parametrize("replace", [text_edits.replace_all, text_edits.replace_once])
def test_replace_says_what_is_missing(replace: Callable[[str, str, str], str]) -> None:
    with pytest.raises(ToolError, match="'zebra' does not occur"):
        replace("horse", "zebra", "x")
    with pytest.raises(ToolError, match="is empty"):
        replace("horse", "", "x")


@given(texts, st.text(alphabet="ab", min_size=1, max_size=2), texts)
def test_replace_once_changes_one_place_or_nothing(value: str, old: str, new: str) -> None:
    places = [at for at in range(len(value)) if value.startswith(old, at)]
    if len(places) == 1:
        assert text_edits.replace_once(value, old, new) == value[: places[0]] + new + value[places[0] + len(old) :]
    else:
        with pytest.raises(ToolError):
            text_edits.replace_once(value, old, new)


def test_replace_once_names_the_lines_when_there_are_several() -> None:
    with pytest.raises(ToolError, match="lines 1, 3"):
        text_edits.replace_once("tea\nmilk\ntea", "tea", "x")


def test_overlapping_occurrences_count_as_several() -> None:
    with pytest.raises(ToolError, match="more than once"):
        text_edits.replace_once("aaa", "aa", "b")


@given(lines.filter(lambda given: given != [""]), st.text(alphabet="xyz", max_size=3), st.data())
def test_insert_puts_the_text_between_the_lines(before: list[str], text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(before)))
    assert text_edits.insert("\n".join(before), text, at) == "\n".join([*before[:at], text, *before[at:]])
    assert text_edits.insert("\n".join(before), text) == "\n".join([*before, text])


@pytest.mark.parametrize("line", [3, -2, 99])
def test_insert_beyond_the_end_is_refused(line: int) -> None:
    with pytest.raises(ToolError, match="has 2 lines"):
        text_edits.insert("one\ntwo", "x", line)


def test_line_numbers_from_a_display_are_refused() -> None:
    with pytest.raises(ToolError, match="'new_string' contains line numbers"):
        text_edits.plain("fine\n  2→ not fine", "new_string")
    assert text_edits.plain("step 2→3 is fine", "new_string") == "step 2→3 is fine"


def test_tabs_become_spaces_and_nul_goes() -> None:
    assert text_edits.plain("a\tb\x00", "x") == "a       b"


def test_the_limit_binds_growth_and_lets_shrink() -> None:
    text_edits.check_limit("notes", "", "12345", 5)
    with pytest.raises(ToolError, match="would have 6 characters, and its limit is 5"):
        text_edits.check_limit("notes", "", "123456", 5)
    text_edits.check_limit("notes", "12345678", "123456", 5)


@pytest.mark.parametrize("path", ["/memories/a/b", "memories/a/b", "/a/b", "a/b", " /memories/a/b/ "])
def test_paths_name_labels(path: str) -> None:
    assert text_edits.label_of(path) == "a/b"


@pytest.mark.parametrize("path", ["", "/", "/memories", "/memories/"])
def test_a_path_without_a_label_is_refused(path: str) -> None:
    with pytest.raises(ToolError, match="is not the path of a memory block"):
        text_edits.label_of(path)
