"""Sums of what was used: every field counts, and a count that no provider gave stays unknown."""

from dataclasses import fields

from kelpie.core.conversations.messages import Usage
from kelpie.core.permissions.budgets import SpentAmount

UNKNOWN = ("cached_input_tokens", "cache_write_tokens", "reasoning_tokens", "load_ns", "inference_ns")


def test_every_count_of_two_usages_is_added_up() -> None:
    names = [each.name for each in fields(Usage)]
    one = Usage(**{name: 2**place for place, name in enumerate(names)})
    other = Usage(**{name: 3**place for place, name in enumerate(names)})
    assert [getattr(one + other, name) for name in names] == [2**place + 3**place for place in range(len(names))]


def test_a_count_that_only_one_provider_gave_is_kept_and_none_stays_none() -> None:
    known = Usage(**dict.fromkeys(UNKNOWN, 7))
    for total in (known + Usage(), Usage() + known):
        assert [getattr(total, name) for name in UNKNOWN] == [7] * len(UNKNOWN)
    nothing = Usage() + Usage()
    assert [getattr(nothing, name) for name in UNKNOWN] == [None] * len(UNKNOWN)


def test_a_cost_is_told_only_where_all_of_it_is_known() -> None:
    assert Usage(cost_micros=1_500_000).cost_usd == 1.5
    assert Usage().cost_usd == 0
    assert (Usage(cost_micros=5) + Usage(unpriced_calls=1)).cost_usd is None


def test_what_was_spent_is_added_up() -> None:
    assert SpentAmount(1, 20, 300, 4000) + SpentAmount(5, 60, 700, 8000) == SpentAmount(6, 80, 1000, 12000)
