"""Dates as models write them and as they are shown to models; a date without a zone is in the agent's own.

A text stands for a span of time: a moment for itself, a day for all of it, words such as "last 7 days" for what they
name. `date_text` reads written dates, `date_words` reads words; a text that neither reads is a ToolError.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kelpie.core.dates.date_text import parse_date_text
from kelpie.core.dates.date_words import parse_date_words
from kelpie.core.dates.time_spans import Span
from kelpie.core.errors import ToolError
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime

TEXT_CHARS_MAX = 100
_SHOWN_CHARS = 40

Range = tuple[Micros | None, Micros | None]


def zone_of(timezone: str) -> ZoneInfo:
    """Raises ToolError for an unknown time zone."""
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(
            f"This agent's time zone '{timezone}' is unknown, so dates cannot be read. Ask the user to correct it."
        ) from None


def bounds(start: tuple[str, str | None], end: tuple[str, str | None], zone: ZoneInfo, now: Micros) -> Range:
    """The first and the last moment of a range, each given as (argument name, text); both are included.

    A span such as "last 7 days" as the start alone gives both. Raises ToolError for a text that is no date, and for a
    range that ends before it begins.
    """
    first = _span(start[0], start[1], zone, now) if start[1] else None
    last = _span(end[0], end[1], zone, now) if end[1] else None
    since = first.first if first else None
    until = last.last if last else (first.last if first and first.closed else None)
    if since is not None and until is not None and until < since:
        raise ToolError(
            f"'{end[0]}' ({_short(end[1])}) is before '{start[0]}' ({_short(start[1])}). A period must not end before "
            "it begins. Swap the two, or omit one."
        )
    return since, until


def _span(name: str, text: str, zone: ZoneInfo, now: Micros) -> Span:
    """The span of a text. Raises ToolError."""
    try:
        if len(text) > TEXT_CHARS_MAX:
            raise ValueError
        words = " ".join(text.split())
        return _read(words, zone, now)
    except (ValueError, OverflowError):
        raise ToolError(
            f"'{name}' is not a date: '{_short(text)}'. Use a day (2024-01-31), a day and time (2024-01-31T14:30, with "
            "an offset if it is not in your time zone), a Unix time, or a period such as 'yesterday', 'last 7 days' "
            "or '3 hours ago'."
        ) from None


def _read(words: str, zone: ZoneInfo, now: Micros) -> Span:
    """Raises ValueError or OverflowError."""
    found = parse_date_words(words.lower(), now, zone)
    if found is not None:
        return found
    for between in (" to ", "/", ".."):
        begin, found_it, end = words.partition(between)
        if found_it and begin.strip() and end.strip() and not _names_a_zone(words, between):
            first, last = _one(begin, zone, now), _one(end, zone, now)
            if last.last < first.first:
                raise ValueError
            return Span(first.first, last.last, closed=True)
    return _one(words, zone, now)


def _names_a_zone(words: str, between: str) -> bool:
    """True if a slash is part of a name such as Europe/Berlin and not between two dates."""
    return between == "/" and words[words.index("/") - 1].isalpha() and words[words.index("/") + 1 :][:1].isalpha()


def _one(words: str, zone: ZoneInfo, now: Micros) -> Span:
    words = words.strip()
    return parse_date_words(words.lower(), now, zone) or parse_date_text(words, zone)


def _short(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def format_moment(at: Micros, zone: ZoneInfo) -> str:
    """A moment as it can be written back: ISO 8601 with its offset."""
    try:
        return _seen(at).astimezone(zone).isoformat()
    except OverflowError:  # in that zone it is before the first or after the last year there is
        return _seen(at).isoformat()


def _seen(at: Micros) -> datetime:
    try:
        return as_datetime(at)
    except OverflowError:
        return (datetime.min if at < 0 else datetime.max).replace(tzinfo=UTC)


def ago(at: Micros, now: Micros) -> str:
    """The time since then, in the largest unit that fits."""
    seconds = max(0, now - at) // MICROS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"
