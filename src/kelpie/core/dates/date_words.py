"""Time spans in a few words, relative to now: "yesterday", "last 7 days", "3 hours ago", "this month".

"Last week" is the week before this one, from Monday on; "past week" and "last 7 days" reach up to now. Hours and
minutes are counted as they pass, days and longer units by the calendar.
"""

import re
from datetime import date, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

from kelpie.core.dates.time_spans import Span, Unit, between, days, shifted, unit_of
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime

_UNIT = r"(second|minute|hour|day|week|month|quarter|year)"
_COUNT = r"(\d{1,6}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_OPENING = re.compile(r"(?:(?:in|over|during|within|on) )?(?:the )?")
_ROLLING = re.compile(rf"(?:last|past|previous) (?:{_COUNT} )?{_UNIT}s?")
_AGO = re.compile(rf"{_COUNT} {_UNIT}s? ago")
_CALENDAR = re.compile(rf"(this|last|previous|current) {_UNIT}")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = re.compile(rf"(?:(last|this) )?({'|'.join(_WEEKDAYS)})")
_NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_DAYS = {"today": 0, "yesterday": -1, "the day before yesterday": -2, "tomorrow": 1}


def parse_date_words(words: str, now: Micros, zone: ZoneInfo) -> Span | None:
    """The span that words in lower case name; None when they are none of these. Raises ValueError, OverflowError."""
    if words.startswith("since "):
        since = parse_date_words(words.removeprefix("since "), now, zone)
        return since and Span(since.first, since.last)
    today = as_datetime(now).astimezone(zone).date()
    if words == "now":
        return Span(now, now)
    if words in _DAYS:
        day = today + timedelta(days=_DAYS[words])
        return days(day, day, zone, closed=True)
    opening = _OPENING.match(words)
    words = words[opening.end() :] if opening else words
    by_calendar = _calendar(words, today, zone) or _weekday(words, today, zone)
    return by_calendar or _rolling(words, today, now, zone) or _ago(words, today, now, zone)


def _calendar(words: str, today: date, zone: ZoneInfo) -> Span | None:
    found = _CALENDAR.fullmatch(words)
    if found is None or found.group(2) in _SECONDS:
        return None
    unit, back = cast("Unit", found.group(2)), found.group(1) in ("last", "previous")
    if back and unit == "day":  # that is a day up to now, as "last 1 day" is
        return None
    first, last = unit_of(shifted(unit_of(today, unit)[0], -1, unit) if back else today, unit)
    return days(first, last, zone, closed=True)


def _rolling(words: str, today: date, now: Micros, zone: ZoneInfo) -> Span | None:
    """So many units up to now; whole days count from the same time of the day on."""
    found = _ROLLING.fullmatch(words)
    if found is None:
        return None
    count, unit = _count(found.group(1) or "one"), found.group(2)
    return Span(_back(count, unit, today, now, zone), now, closed=True)


def _ago(words: str, today: date, now: Micros, zone: ZoneInfo) -> Span | None:
    """A moment, or the whole of a day that was so many days or longer units ago."""
    found = _AGO.fullmatch(words)
    if found is None:
        return None
    count, unit = _count(found.group(1)), found.group(2)
    if unit in _SECONDS:
        moment = _back(count, unit, today, now, zone)
        return Span(moment, moment)
    day = shifted(today, -count, cast("Unit", unit))
    return days(day, day, zone)


def _weekday(words: str, today: date, zone: ZoneInfo) -> Span | None:
    """The latest such day; "last" is one before today, "this" the one of this week."""
    found = _WEEKDAY.fullmatch(words)
    if found is None:
        return None
    wanted = _WEEKDAYS.index(found.group(2))
    back = (today.weekday() - wanted) % 7
    if found.group(1) == "last":
        back = back or 7
    elif found.group(1) == "this":
        back = today.weekday() - wanted
    day = today - timedelta(days=back)
    return days(day, day, zone, closed=True)


def _back(count: int, unit: str, today: date, now: Micros, zone: ZoneInfo) -> Micros:
    if unit in _SECONDS:
        return now - count * _SECONDS[unit] * MICROS_PER_SECOND
    clock = as_datetime(now).astimezone(zone).time()
    then = datetime.combine(shifted(today, -count, cast("Unit", unit)), clock)
    return between(then, then, zone).first


def _count(word: str) -> int:
    if word in ("a", "an"):
        return 1
    return _NUMBERS.index(word) if word in _NUMBERS else int(word)
