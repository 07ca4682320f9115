"""Dates as models write them and as they are shown to models; a date without a zone is in the agent's own.

A moment may be written as ISO 8601 or RFC 3339, as a Unix time in seconds or milliseconds, or as a plain day; a stretch
as a few words, such as "last 7 days". A leap second is the second after it.
"""

import re
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kelpie.core.errors import ToolError
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime, from_datetime

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_UNIX = re.compile(r"[+-]?\d{9,14}(\.\d{1,6})?")
_LEAP = re.compile(r"(\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}):60(?:\.\d+)?")
_LAST = re.compile(r"(?:the )?(?:last|past) (?:(\d{1,5}) )?(minute|hour|day|week|month|year)s?")
_AGO = re.compile(r"(\d{1,5}) (minute|hour|day|week|month|year)s? ago")
_UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
_MILLISECONDS_FROM = 10**11  # as seconds it would be the year 5138
_END = timedelta(days=1, microseconds=-1)

Range = tuple[Micros | None, Micros | None]


def zone_of(timezone: str) -> ZoneInfo:
    """Raises ToolError for a name that is no time zone."""
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolError(f"This agent's time zone '{timezone}' is unknown, so dates cannot be understood.") from None


def bounds(start: tuple[str, str | None], end: tuple[str, str | None], zone: ZoneInfo, now: Micros) -> Range:
    """The first and the last moment of a range, each given as (argument name, text); a day is meant as a whole.

    A stretch such as "last 7 days" as the start alone gives both. Raises ToolError for a text that is no date, and for
    a range that ends before it begins.
    """
    first = _span(start[0], start[1], zone, now) if start[1] else (None, None)
    last = _span(end[0], end[1], zone, now) if end[1] else (None, first[1] if _is_stretch(start[1]) else None)
    since, until = first[0], last[1]
    if since is not None and until is not None and until < since:
        raise ToolError(f"'{end[0]}' lies before '{start[0]}'; swap them.")
    return since, until


def _is_stretch(text: str | None) -> bool:
    """Whether a text names a time by words, so that it has an end of its own."""
    return text is not None and text.strip()[:1].isalpha()


def _span(name: str, text: str, zone: ZoneInfo, now: Micros) -> Range:
    """The first and the last moment that a text stands for. Raises ToolError."""
    words = " ".join(text.lower().split())
    try:
        spoken = _spoken(words, as_datetime(now).astimezone(zone))
        first, last = spoken or _written(text.strip(), zone)
        return from_datetime(first), from_datetime(last)
    except (ValueError, OverflowError, OSError):
        raise ToolError(
            f"'{name}' is not a date: '{text[:40]}'. "
            "Write 2024-01-31, 2024-01-31T14:30, a Unix time, or a stretch such as 'last 7 days'."
        ) from None


def _spoken(words: str, now: datetime) -> tuple[datetime, datetime] | None:
    """The stretch that a few words name, as seen from now."""
    if words == "now":
        return now, now
    if words in ("today", "yesterday"):
        day = now.date() - timedelta(days=words == "yesterday")
        return _whole(day, now)
    if found := _LAST.fullmatch(words):
        return now - int(found.group(1) or 1) * _UNITS[found.group(2)], now
    if found := _AGO.fullmatch(words):
        moment = now - int(found.group(1)) * _UNITS[found.group(2)]
        return _whole(moment.date(), now) if found.group(2) not in ("minute", "hour") else (moment, moment)
    return None


def _whole(day: date, now: datetime) -> tuple[datetime, datetime]:
    start = datetime.combine(day, time(), now.tzinfo)
    return start, start + _END


def _written(text: str, zone: ZoneInfo) -> tuple[datetime, datetime]:
    if _UNIX.fullmatch(text):
        seconds = float(text) / (1000 if abs(float(text)) >= _MILLISECONDS_FROM else 1)
        moment = as_datetime(round(seconds * MICROS_PER_SECOND))
        return moment, moment
    leap = _LEAP.match(text)
    moment = datetime.fromisoformat(f"{leap.group(1)}:59{text[leap.end() :]}" if leap else text)
    if leap:
        moment += timedelta(seconds=1)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return moment, moment + _END if _DAY.fullmatch(text) else moment


def shown(at: Micros, zone: ZoneInfo) -> str:
    return as_datetime(at).astimezone(zone).isoformat()


def ago(at: Micros, now: Micros) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, now - at) // MICROS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"
