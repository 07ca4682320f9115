"""Written dates: ISO 8601 and RFC 3339 with the variants that models write, Unix times; days, months and years as a
whole.

A leap second (23:59:60) is the second after it, and 24:00 the beginning of the next day.
"""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kelpie.core.dates.time_spans import Span, between, days, unit_of
from kelpie.core.time import Micros, as_datetime

_UNIX = re.compile(r"[@+-]?\d{9,19}(?:\.\d{1,9})?|@[+-]?\d{1,19}(?:\.\d{1,9})?|[+-]\d{1,19}(?:\.\d{1,9})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-?W\d{2}-?\d", re.ASCII)
_REDUCED = re.compile(r"(\d{4})(?:-(\d{2})|-?W(\d{2})|-(\d{3}))?", re.ASCII)
_ZONED = re.compile(r"(.*\d)(?: ?\[| )([A-Za-z][\w+-]*(?:/[\w+-]+)*)\]?", re.ASCII)
_MOMENT = re.compile(
    r"(?P<day>[\dW-]{8,10})[Tt ](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<part>\d+))?)?)?"
    r" ?(?P<offset>[Zz]|(?P<sign>[+-])(?P<east>\d{2}):?(?P<more>\d{2})?)?",
    re.ASCII,
)
_LEAP, _MIDNIGHT, _HOUR_MINUTES = 60, 24, 60
# A number is taken for seconds, milliseconds, microseconds or nanoseconds: the one that gives a year people write
# about.
_SCALES = ((10**11, 10**6), (10**14, 10**3), (10**17, 1))


def parse_date_text(text: str, zone: ZoneInfo) -> Span:
    """The span of a written date; one without a zone is in this one. Raises ValueError, OverflowError."""
    if _UNIX.fullmatch(text):
        moment = _unix(Decimal(text.lstrip("@")))
        return Span(moment, moment)
    if zoned := _ZONED.fullmatch(text):
        text, zone = zoned.group(1), _zone(zoned.group(2))
    if _DAY.fullmatch(text):
        day = date.fromisoformat(text)
        return days(day, day, zone)
    if reduced := _REDUCED.fullmatch(text):
        return days(*_reduced(reduced), zone)
    return _moment(text, zone)


def _unix(number: Decimal) -> Micros:
    for below, scale in _SCALES:
        if abs(number) < below:
            at = int((number * scale).to_integral_value())
            break
    else:
        at = int(number) // 1000
    as_datetime(at)  # must be a year there is
    return at


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo("UTC" if name.upper() in ("Z", "GMT") else name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError("no such zone") from None


def _reduced(found: re.Match[str]) -> tuple[date, date]:
    """The year, month, week, or day of the year that is meant as a whole."""
    year, month, week, ordinal = (int(part) if part else None for part in found.groups())
    assert year is not None
    if ordinal is not None:
        day = date(year, 1, 1) + timedelta(days=ordinal - 1)
        if day.year != year:
            raise ValueError("no such day")
        return day, day
    if week is not None:
        return unit_of(date.fromisocalendar(year, week, 1), "week")
    return unit_of(date(year, month or 1, 1), "month" if month else "year")


def _moment(text: str, zone: ZoneInfo) -> Span:
    found = _MOMENT.fullmatch(text)
    if found is None or not _DAY.fullmatch(found["day"]):
        raise ValueError("no moment")
    hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
    micros = int((found["part"] or "")[:6].ljust(6, "0"))
    clock, later = time(hour % 24, minute, min(second, 59), micros), timedelta()
    if second == _LEAP:
        later = timedelta(seconds=1)
    elif second > _LEAP or hour > _MIDNIGHT or (hour == _MIDNIGHT and clock != time.min):
        raise ValueError("no such time")
    if hour == _MIDNIGHT:
        later = timedelta(days=1)
    shown = datetime.combine(date.fromisoformat(found["day"]), clock) + later
    moment = shown if found["offset"] is None else shown.replace(tzinfo=_offset(found))
    if second == _LEAP and not _follows_a_leap(shown, moment):
        raise ValueError("no leap second")
    return between(moment, moment, zone)


def _offset(found: re.Match[str]) -> timezone:
    east = timedelta(hours=int(found["east"] or 0), minutes=int(found["more"] or 0))
    if int(found["more"] or 0) >= _HOUR_MINUTES:
        raise ValueError("no such offset")
    return timezone(-east if found["sign"] == "-" else east)


def _follows_a_leap(shown: datetime, moment: datetime) -> bool:
    """Leap seconds come at midnight in UTC; people who write 23:59:60 may mean their own."""
    midnight = time(microsecond=shown.microsecond)
    return shown.time() == midnight or (moment.tzinfo is not None and moment.astimezone(UTC).time() == midnight)
