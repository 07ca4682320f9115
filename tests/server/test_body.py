"""Raw request bodies."""

from json import JSONDecodeError

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.server.http.json_body import DEPTH_MAX, parse


def nested(depth: int) -> bytes:
    return b'{"a":' * (depth - 1) + b"[1]" + b"}" * (depth - 1)


def test_depth_is_bounded_below_what_can_be_written_back() -> None:
    orjson.dumps(parse(nested(DEPTH_MAX)))
    with pytest.raises(JSONDecodeError, match="deeper than"):
        parse(nested(DEPTH_MAX + 1))


def test_wide_is_not_deep() -> None:
    assert len(parse(b"[" + b",".join([b"[[]]"] * 10_000) + b"]")) == 10_000


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"NaN", b"1e999", b"\xff", b'"\\ud800"', b"{bad}", b"[" * 2000 + b"]" * 2000, b'{"a":1}x']
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(JSONDecodeError):
        parse(raw)


def test_nul_characters_are_dropped_everywhere() -> None:
    assert parse(b'{"a\\u0000": ["b\\u0000c", {"d": "\\u0000"}]}') == {"a": ["bc", {"d": ""}]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_is_taken_in_can_be_written_back(value: object) -> None:
    try:
        raw = orjson.dumps(value)
    except TypeError:
        return  # text that no JSON can hold
    back = orjson.dumps(parse(raw))
    assert b"\\u0000" not in back
    assert b"\\u0000" in raw or back == raw
