"""Strings taken out of half-written JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.agent.events.partial_json import StringField


def _fed(name: str, text: str, sizes: list[int]) -> str:
    field, out, at = StringField(name), "", 0
    for size in sizes:
        out += field.feed(text[at : at + size])
        at += size
    return out + field.feed(text[at:])


@given(
    value=st.text(),
    other=st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda c: st.lists(c) | st.dictionaries(st.text(), c),
            max_leaves=5,
        ),
        max_size=3,
    ),
    ascii_only=st.booleans(),
    sizes=st.lists(st.integers(1, 7), max_size=40),
)
def test_a_field_is_found_however_the_text_is_cut(value, other, ascii_only, sizes):
    other.pop("message", None)
    value = value.encode("utf-8", "ignore").decode()
    text = json.dumps({**other, "message": value}, ensure_ascii=ascii_only)
    assert _fed("message", text, sizes) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"message": "inner"}}',
        '{"a": ["message", "x"]}',
        '{"messages": "x"}',
        '{"a": "message"}',
        "[]",
        "",
        "nonsense",
    ],
)
def test_only_the_top_level_field_counts(text):
    assert _fed("message", text, []) == ""
