"""Size of JSON before it is parsed: no value is missed, and signs within texts are not counted."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.json_size import has_more_values, is_deeper

TEXTS = st.text(st.sampled_from('ab,{["\\\n'), max_size=6)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def count(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


def depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(depth, inner), default=0) + isinstance(value, dict | list)


@given(VALUES)
def test_values_are_counted_without_parsing(value: object) -> None:
    raw, number = orjson.dumps(value), count(value)
    assert all(has_more_values(raw, most) for most in range(1, number))
    assert not has_more_values(raw, 2 * number)  # an empty list counts twice


@given(VALUES, st.integers(1, 5))
def test_depth_is_counted(value: object, most: int) -> None:
    assert is_deeper(value, most) == (depth(value) > most)


def test_a_long_text_is_one_value() -> None:
    assert not has_more_values(orjson.dumps({"text": 'a,"[\\{' * 100_000}), 10)
