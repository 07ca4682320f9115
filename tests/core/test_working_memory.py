"""The rules of working memory: keys, values, lives, and what an atomic change makes of a value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import InvalidInput
from kelpie.core.memory.working_memory import (
    DEPTH_MAX,
    TTL_SECONDS_MAX,
    Append,
    Increment,
    Merge,
    WorkingMemoryEntry,
    WorkingMemoryLimits,
    changed,
    check_key,
    encoded,
    end_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def entry(value: Any) -> WorkingMemoryEntry:
    return WorkingMemoryEntry("k", value, 1, 0, 0)


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "tasks/today",
        "ключ",
        "👩‍🚀 🇩🇪",
        "a b",
        "%2F?#&=",
        "'; DROP TABLE agents; --",
        "x" * 256,
        "a..b",
        "...",
        "/",
    ],
)
def test_a_key_is_any_printable_text(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "\x00", "\u2028", "\ud800", ".", "..", "a/../b", "\x7f"])
def test_what_cannot_be_a_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match=r"^key: "):
        check_key(key)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [("x" * 99, "has 101 bytes"), (nested(DEPTH_MAX + 1), "nested deeper"), (2**64, "JSON"), ({1: 2}, "JSON")],
)
def test_what_cannot_be_a_value_is_refused(value: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"^value: .*{why}"):
        encoded(value, WorkingMemoryLimits(value_bytes=100))


def test_values_up_to_the_bounds() -> None:
    assert encoded("x" * 98, WorkingMemoryLimits(value_bytes=100)) == f'"{"x" * 98}"'
    assert encoded(nested(DEPTH_MAX), WorkingMemoryLimits()) == "[" * DEPTH_MAX + "]" * DEPTH_MAX
    assert encoded([[]] * 99, WorkingMemoryLimits()).count("[]") == 99


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), TTL_SECONDS_MAX + 1])
def test_a_life_that_cannot_be(ttl: float) -> None:
    with pytest.raises(InvalidInput, match=r"^ttl_seconds: "):
        end_of(ttl, 0)


def test_lives() -> None:
    assert end_of(None, 5) is None
    assert end_of(1.5, 5) == 1_500_005
    assert end_of(1e-9, 5) == 6, "a life is never over before it begins"


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (None, Increment(2), 2),
        (entry(2), Increment(-0.5), 1.5),
        (None, Append("a"), ["a"]),
        (entry([1]), Append([2]), [1, [2]]),
        (None, Merge({"a": {"b": None, "c": 1}}), {"a": {"c": 1}}),
        (entry({"a": 1, "b": {"c": 1, "d": 2}}), Merge({"a": None, "b": {"c": 3}}), {"b": {"c": 3, "d": 2}}),
        (entry({"a": [1]}), Merge({"a": {"b": 1}}), {"a": {"b": 1}}),
    ],
)
def test_changes(before: WorkingMemoryEntry | None, change: Any, after: Any) -> None:
    assert changed(before, change) == after


@pytest.mark.parametrize(
    ("value", "change", "told"),
    [
        ("1", Increment(1), "increment: needs a number, but the value is text"),
        (True, Increment(1), "increment: .* true or false"),
        (2**63 - 1, Increment(1), "increment: gives a number that is too large"),
        (1e308, Increment(1e308), "increment: gives a number that is too large"),
        ({}, Append(1), "append: needs a list, but the value is an object"),
        (None, Merge({}), "merge: needs an object, but the value is null"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(value: Any, change: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        changed(entry(value), change)


@given(JSON, st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_a_merge_changes_nothing_it_was_given_and_twice_is_once(value: Any, members: dict[str, Any]) -> None:
    before = entry(value if isinstance(value, dict) else {"v": value})
    kept = encoded(before.value, WorkingMemoryLimits())
    once = changed(before, Merge(members))
    assert encoded(before.value, WorkingMemoryLimits()) == kept
    assert changed(entry(once), Merge(members)) == once
