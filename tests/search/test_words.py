"""Texts as the numbers of their words: endings, accents, scripts, and nothing that could break it."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.search.text import tokenizer
from kelpie.search.text.stemmer import stem
from kelpie.world.sqlite.connections import memory_connection

SAME = [
    ("searching", "searched"), ("Boats", "boat"), ("CAFÉ", "cafe"), ("e\u0301té", "été"), ("ﬁle", "file"),
    ("İstanbul", "istanbul"), ("foo_bar", "foo/bar"), ("ÜBUNG", "ubung"), ("Straße", "strasse"),
]  # fmt: skip
SPLIT = {
    "it's 100% real": 4,
    "秘密": 2,
    "ключ и замок": 3,
    "한국어 문장": 2,
    "हिन्दी में": 2,
    "\ud800 … 🙂 \x00 \u200b": 0,
    "x\u200by": 2,
    "": 0,
}


@pytest.mark.parametrize(("one", "other"), SAME)
def test_forms_of_a_word_are_one_word(one: str, other: str) -> None:
    assert tokenizer.numbers(one) == tokenizer.numbers(other) != ()


@pytest.mark.parametrize("text", SPLIT)
def test_words_are_parted_where_they_end(text: str) -> None:
    assert len(tokenizer.numbers(text)) == SPLIT[text]


def test_a_query_is_each_of_its_words_once_and_bounded() -> None:
    assert tokenizer.asked("fox Foxes and hens fox") == tokenizer.numbers("fox hens")
    assert len(tokenizer.asked(" ".join(f"w{n}" for n in range(500)))) == tokenizer.QUERY_TERMS_MAX
    assert len(tokenizer.asked("x" * 100_000)) == 1


def test_words_that_say_nothing_are_left_out_of_a_query_that_has_others() -> None:
    assert tokenizer.asked("When did the fox see him?") == tokenizer.numbers("fox see")
    assert tokenizer.asked("Who is it?") == tokenizer.numbers("who is it")


@given(st.text(max_size=80))
def test_any_text_has_numbers_of_four_bytes(text: str) -> None:
    assert struct.unpack(f"<{len(tokenizer.numbers(text))}I", tokenizer.packed(text)) == tokenizer.numbers(text)


def test_endings_are_lost_as_in_the_text_index_of_sqlite() -> None:
    """Every English word of our documents, and some that are nothing but an ending."""
    folder = Path(__file__).parents[2]
    pages = [
        page.read_text() for page in sorted([*folder.glob("docs/**/*.md"), *folder.glob("src/kelpie/core/**/*.py")])
    ]
    known = sorted(
        {*re.findall("[a-z]{1,60}", " ".join(pages).lower()), "ies", "eed", "sses", "ing", "ed", "yes", "oed"}
    )
    assert len(known) > 2000
    with memory_connection() as tx:
        tx.exec_driver_sql("CREATE VIRTUAL TABLE t USING fts5(word, tokenize='porter unicode61')")
        tx.exec_driver_sql("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
        tx.exec_driver_sql("INSERT INTO t(rowid, word) VALUES (?, ?)", list(enumerate(known)))
        theirs = {known[doc]: term for doc, term in tx.exec_driver_sql("SELECT doc, term FROM v")}
    assert {word: stem(word) for word in known} == theirs


def test_very_long_words_are_not_remembered() -> None:
    tokenizer.numbers("known")
    before = tokenizer._number.cache_info().currsize
    assert tokenizer.numbers("f" * 100_000) != tokenizer.numbers("f" * 100_001)
    assert tokenizer._number.cache_info().currsize == before
