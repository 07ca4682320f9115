"""Word wrap of a text that arrives in pieces."""

import pytest

from kelpie.cli.display.table import text_width, wrapped
from kelpie.cli.display.word_wrap import HELD_MAX, WordWrap

TEXT = "Once upon a time, in a small village, there lived a weaver who loved tea."


def laid_out(text: str, width: int, piece: int, column: int = 0) -> str:
    wrap = WordWrap(width, column)
    return "".join(wrap.add(text[at : at + piece]) for at in range(0, len(text), piece)) + wrap.rest()


@pytest.mark.parametrize("piece", [1, 3, 7, 200])
def test_lines_break_between_words_whatever_the_pieces_are(piece: int) -> None:
    assert laid_out(TEXT, 20, piece).split("\n") == wrapped(TEXT, 20)
    assert laid_out("a label comes first", 20, piece, column=15) == "a\nlabel comes first"


def test_lines_of_the_text_itself_and_their_indentation_stay() -> None:
    code = "def f():\n    return 1\n\nf()"
    assert laid_out(code, 40, 2) == code


def test_words_that_no_line_holds_are_not_held_back() -> None:
    address = "x" * 100
    wrap = WordWrap(80)
    assert len(wrap.add(address)) >= HELD_MAX
    assert laid_out(f"see {address} there", 80, 5).replace("\n", " ") == f"see {address} there"


def test_scripts_without_spaces_are_written_at_once_and_fit() -> None:
    wrap = WordWrap(10)
    shown = wrap.add("茶は飲み物です")
    assert shown.replace("\n", "") == "茶は飲み物です" and wrap.rest() == ""
    assert all(text_width(line) <= 10 for line in shown.split("\n"))


def test_a_word_is_shown_as_soon_as_it_is_complete() -> None:
    wrap = WordWrap(80)
    assert [wrap.add("Hel"), wrap.add("lo "), wrap.add("you"), wrap.rest()] == ["", "Hello", "", " you"]
