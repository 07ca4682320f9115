"""Formats spending and budgets as text, and parses a budget that a user typed."""

from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.core.permissions.budgets import Period

UNKNOWN = "unknown"
PERIODS = tuple(period.value for period in Period)
EXAMPLES = (
    "Examples: '5 usd a day', '200000 tokens' (in total), 'none' to remove the budget. Periods are hour, day and month."
)


def dollars(usd: float | None) -> str:
    """A cost as text; not every model has a price."""
    return UNKNOWN if usd is None else f"${usd:.6f}".rstrip("0").rstrip(".") if usd else "$0"


def spent_line(spent: dict[str, Any]) -> str:
    """The total spending of an agent."""
    unpriced = spent["unpriced_calls"]
    more = f", plus {unpriced} calls to models without a known price" if unpriced else ""
    return f"{dollars(spent['usd'])} for {spent['tokens']} tokens{more}"


def budget_line(budget: dict[str, Any] | None) -> str | None:
    """The budget, and how much of it is spent."""
    if budget is None:
        return None
    parts: list[str] = []
    if budget["usd"] is not None:
        parts.append(f"{dollars(budget['spent_usd'])} of {dollars(budget['usd'])}")
    if budget["tokens"] is not None:
        parts.append(f"{budget['spent_tokens']} of {budget['tokens']} tokens")
    period = "in total" if budget["period"] == Period.total else f"this {budget['period']}"
    return f"{' and '.join(parts)} {period}{', used up' if budget['used_up'] else ''}"


def parse_budget(text: str) -> dict[str, Any] | None:
    """The budget in a text such as '5 usd a day'; None for 'none'. Raises InvalidInput."""
    words = [word for word in text.lower().split() if word not in ("a", "per", "in", "and")]
    if words == ["none"]:
        return None
    found: dict[str, Any] = {}
    while len(words) >= 2 and words[1] in ("usd", "tokens"):
        number, unit, *words = words
        try:
            found[unit] = float(number) if unit == "usd" else int(number)
        except ValueError:
            raise InvalidInput("budget", f"'{number[:40]}' is not a number. {EXAMPLES}") from None
    if not found or len(words) > 1 or (words and words[0] not in PERIODS):
        raise InvalidInput("budget", f"invalid budget '{text[:80]}'. {EXAMPLES}")
    return found | {"period": words[0] if words else Period.total.value}
