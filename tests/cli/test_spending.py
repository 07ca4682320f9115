"""Money as words, and budgets as they are typed."""

from typing import Any

import pytest

from kelpie.cli.budget_text import budget_line, dollars, parse_budget, spent_line
from kelpie.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("usd", "words"), [(None, "unknown"), (0, "$0"), (0.00038, "$0.00038"), (12.5, "$12.5"), (3, "$3")]
)
def test_dollars(usd: float | None, words: str):
    assert dollars(usd) == words


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("5 usd a day", {"usd": 5.0, "period": "day"}),
        ("200000 tokens", {"tokens": 200_000, "period": "total"}),
        ("0.5 usd and 100 tokens per hour", {"usd": 0.5, "tokens": 100, "period": "hour"}),
        ("none", None),
    ],
)
def test_budgets_as_they_are_typed(text: str, budget: dict[str, Any] | None):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "5", "5 euros", "x usd", "1.5 tokens", "5 usd a year", "5 usd a day too"])
def test_what_is_no_budget(text: str):
    with pytest.raises(InvalidInput, match=r"budget: .*Examples: '5 usd a day'"):
        parse_budget(text)


def test_lines():
    spent = {"usd": 0.5, "tokens": 10, "unpriced_calls": 2}
    assert spent_line(spent) == "$0.5 for 10 tokens, plus 2 calls to models without a known price"
    budget = {"usd": 1.0, "tokens": None, "period": "day", "spent_usd": 1.5, "spent_tokens": 3, "used_up": True}
    assert budget_line(budget) == "$1.5 of $1 this day, used up" and budget_line(None) is None
