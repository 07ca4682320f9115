"""Dates inside a question in English: "in May 2023", "on 7 July", "last spring", "yesterday", "three weeks ago".

A mention stands for one or more spans of time: a month, day or season without a year may be that of any recent year.
What is not certainly a date is left alone ("may" and "march" are also verbs). Nothing here raises: a question is not a
date field, and a day that does not exist is no mention.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from zoneinfo import ZoneInfo

from kelpie.core.dates.date_words import parse_date_words
from kelpie.core.dates.time_spans import Span, days, unit_of
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime

MENTIONS_MAX = 4
TEXT_CHARS_MAX = 2000
YEARS = 10  # how far back a month, day or season without a year may lie

DAY = 86_400 * MICROS_PER_SECOND
MARGIN_MIN, MARGIN_MAX = 5 * DAY, 30 * DAY  # around a span, within which a time is near to it

_MONTHS = {
    "january": 1, "jan": 1, "february": 2, "feb": 2, "march": 3, "mar": 3, "april": 4, "apr": 4, "may": 5, "june": 6,
    "jun": 6, "july": 7, "jul": 7, "august": 8, "aug": 8, "september": 9, "sept": 9, "sep": 9, "october": 10,
    "oct": 10, "november": 11, "nov": 11, "december": 12, "dec": 12,
}  # fmt: skip
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # the first month, of three
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_IN = r"(?:in|during|of|since|by|until|from|before|after|around|throughout|for)"
_UNIT = r"(?:second|minute|hour|day|week|month|quarter|year)s?"
_COUNT = r"(?:\d{1,4}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_WEEKDAYS = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_PATTERNS = tuple(
    re.compile(rf"\b(?:{pattern})\b", re.ASCII)
    for pattern in (
        r"(?P<iso>(?:19|20)\d\d-\d\d(?:-\d\d)?)",
        rf"{_DAY}(?: of)? {_MONTH}(?:,? ?{_YEAR})?",
        rf"{_MONTH} (?:the )?{_DAY}(?:,? ?{_YEAR})?",
        rf"{_MONTH},? (?:of )?{_YEAR}",
        rf"(?:{_IN}|this|last|early|late|mid) {_MONTH}",
        rf"(?P<season>spring|summer|autumn|fall|winter) (?:of )?{_YEAR}",
        rf"(?:(?:{_IN}|over) (?:the |last |this )?|(?:last|this) )(?P<season>spring|summer|autumn|fall|winter)",
        rf"(?:{_IN}|year|early|late) {_YEAR}",
        rf"(?P<words>the day before yesterday|yesterday|today|(?:last|past|previous|this) (?:{_COUNT} )?{_UNIT}"
        rf"|{_COUNT} {_UNIT} ago|(?:last|this) {_WEEKDAYS})",
    )
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A date in a text: the spans that it may mean, and its words."""

    spans: tuple[Span, ...]
    words: str = ""

    def nearness(self, first: Micros, last: Micros) -> float:
        """How near a time is: 1 if it touches a span, falling to 0 with the distance from it, because people write
        about a day a few days later."""
        nearest = 0.0
        for span in self.spans:
            if first <= span.last and last >= span.first:
                return 1.0
            nearest = max(nearest, _nearness(span, first, last))
        return nearest


def _nearness(span: Span, first: Micros, last: Micros) -> float:
    margin = min(max((span.last - span.first) // 2, MARGIN_MIN), MARGIN_MAX)
    distance = max(span.first - last, first - span.last, 0)
    return max(0.0, 1.0 - distance / margin)


def mentions(text: str, now: Micros, zone: ZoneInfo) -> tuple[Mention, ...]:
    """The dates that a text mentions, in no order, up to a limit."""
    lower, found = " ".join(text[:TEXT_CHARS_MAX].lower().split()), list[Mention]()
    for pattern in _PATTERNS:
        for match in pattern.finditer(lower):
            spans = tuple(_spans(match, now, zone))
            if spans:
                found.append(Mention(spans, match.group()))
                lower = lower[: match.start()] + " " * len(match.group()) + lower[match.end() :]
            if len(found) == MENTIONS_MAX:
                return tuple(found)
    return tuple(found)


def _spans(match: re.Match[str], now: Micros, zone: ZoneInfo) -> Iterator[Span]:
    parts = match.groupdict()
    try:
        if words := parts.get("words"):
            span = parse_date_words(words, now, zone)
            if span is not None:
                yield _day_of(span) if span.first == span.last else span
            return
        today = as_datetime(now).astimezone(zone).date()
        if iso := parts.get("iso"):
            year, month, *day = map(int, iso.split("-"))
            yield _month_or_day(year, month, day[0] if day else None, zone)
            return
        given = parts.get("year")
        years = [int(given)] if given else range(today.year, today.year - YEARS, -1)
        month, day = _MONTHS.get(parts.get("month") or ""), int(parts.get("day") or 0)
        for year in years:
            yield from _in_year(year, month, day, parts.get("season"), zone)
    except (ValueError, OverflowError):
        return


@lru_cache(maxsize=1024)
def _in_year(year: int, month: int | None, day: int, season: str | None, zone: ZoneInfo) -> tuple[Span, ...]:
    """The span in a year; none for a day that it does not have."""
    if season:
        return (_season(year, season, zone),)
    if not month:
        return (days(date(year, 1, 1), date(year, 12, 31), zone, closed=True),)
    try:
        return (_month_or_day(year, month, day or None, zone),)
    except ValueError:
        return ()


def _month_or_day(year: int, month: int, day: int | None, zone: ZoneInfo) -> Span:
    first, last = (date(year, month, day),) * 2 if day else unit_of(date(year, month, 1), "month")
    return days(first, last, zone, closed=True)


def _season(year: int, season: str, zone: ZoneInfo) -> Span:
    """Three months as north of the equator; winter begins in the year's last month."""
    month = _SEASONS[season]
    last = date(year + month // 12, (month + 1) % 12 + 1, 1)
    return days(date(year, month, 1), unit_of(last, "month")[1], zone, closed=True)


def _day_of(moment: Span) -> Span:
    """A moment such as three hours ago, with half a day on either side."""
    return Span(moment.first - DAY // 2, moment.last + DAY // 2, closed=True)
