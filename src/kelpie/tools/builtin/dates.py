"""Dates as models write them and as they are shown to models; a date without a zone is in the agent's own."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kelpie.core.errors import ToolError
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime, from_datetime

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def zone_of(timezone: str) -> ZoneInfo:
    """Raises ToolError for a name that is no time zone."""
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolError(f"This agent's time zone '{timezone}' is unknown, so dates cannot be understood.") from None


def bounds(
    start: tuple[str, str | None], end: tuple[str, str | None], zone: ZoneInfo
) -> tuple[Micros | None, Micros | None]:
    """The first and the last moment of a range, each given as (argument name, text); a day is meant as a whole.

    Raises ToolError for a text that is no date, and for a range that ends before it begins.
    """
    since = None if not start[1] else _moment(start[0], start[1], zone)
    until = None if not end[1] else _moment(end[0], end[1], zone, end_of_day=True)
    if since is not None and until is not None and until < since:
        raise ToolError(f"'{end[0]}' lies before '{start[0]}'; swap them.")
    return since, until


def _moment(name: str, text: str, zone: ZoneInfo, *, end_of_day: bool = False) -> Micros:
    try:
        moment = datetime.fromisoformat(text.strip())
        if end_of_day and _DAY.fullmatch(text.strip()):
            moment += timedelta(days=1, microseconds=-1)
        return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise ToolError(f"'{name}' is not a date: '{text[:40]}'. Write 2024-01-31 or 2024-01-31T14:30.") from None


def shown(at: Micros, zone: ZoneInfo) -> str:
    return as_datetime(at).astimezone(zone).isoformat()


def ago(at: Micros, now: Micros) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, now - at) // MICROS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"
