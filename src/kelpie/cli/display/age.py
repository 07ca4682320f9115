"""Times as people say them: "2 minutes ago", "in 3 days"."""

import re
from datetime import UTC, datetime

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?")
NOW_S = 5
_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def parsed(text: str) -> datetime | None:
    """The time that a text in ISO form names; one without a time zone is in UTC."""
    if not TIME.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age(at: datetime, now: datetime) -> str:
    """How long ago this was, or how far ahead it is, in the largest unit that fits."""
    seconds = int((now - at).total_seconds())
    if abs(seconds) < NOW_S:
        return "just now"
    unit, length = next((unit, length) for unit, length in _UNITS if abs(seconds) >= length)
    count = abs(seconds) // length
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def spelled(at: datetime, now: datetime) -> str:
    """The time to the second, with its age."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({age(at, now)})"
