"""No character that a terminal obeys, and none that reorders a text, is left over."""

import json
import sys
import unicodedata

import pytest

from kelpie.core.printable_text import escaped, escaped_json, on_one_line, readable, without_unsafe

_BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
# The first planes and that of the tags: no other has characters but private ones.
EVERY = "".join(map(chr, (*range(0x20000), *range(0xE0000, 0xE1000), sys.maxunicode)))
UNSAFE = {
    each
    for each in EVERY
    if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
    or unicodedata.bidirectional(each) in _BIDI
    or each in "\u200e\u200f\u061c\u200b\ufeff"
}


def test_a_log_line_has_only_printable_characters() -> None:
    assert escaped(EVERY).isprintable() and escaped_json(EVERY).replace("\n", "").isprintable()
    assert escaped("a\x1b]0;x\x07\x9b2J\u202eb\n") == r"a\x1b]0;x\x07\x9b2J\u202eb\n"
    assert escaped("plain Žluťoučký 日本 🙂") == "plain Žluťoučký 日本 🙂"


def test_escaped_json_means_the_same() -> None:
    value = {"te\u202ext": "\x00\x1b\x7f\x9b\u2066\xa0\u200d🙂\U000e0001\ud800", "n": [1, "\n"]}
    text = escaped_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert text.replace("\n", "").isprintable() and json.loads(text) == value


def test_what_people_read_has_no_unsafe_character() -> None:
    assert not UNSAFE & set(on_one_line(EVERY))
    assert UNSAFE & set(readable(EVERY)) == UNSAFE & set(without_unsafe(EVERY)) == {"\n", "\t"}


@pytest.mark.parametrize("text", ["👨‍👩‍👧", "می‌خواهم", "12\xa0000 €", "日本\u3000語", "नमस्ते"])
def test_joiners_and_spaces_of_languages_stay(text: str) -> None:
    assert readable(text) == on_one_line(text) == without_unsafe(text) == text


def test_a_text_on_one_line_has_spaces_for_breaks() -> None:
    assert on_one_line("a\r\n\tb\u2028c\x1b[2J") == r"a b c\x1b[2J"
