"""Spans of time on a clock in some zone: days, weeks and months with their first and their last moment.

Where clocks are put back, a time that comes twice begins with the first and ends with the second; where they are put
forward, a time that never comes is the moment they would have shown it.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from kelpie.core.time import Micros, from_datetime

Unit = Literal["day", "week", "month", "quarter", "year"]

_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class Span:
    """From its first to its last moment, both included. A closed one has an end even where none is asked for."""

    first: Micros
    last: Micros
    closed: bool = False


def between(first: datetime, last: datetime, zone: ZoneInfo, *, closed: bool = False) -> Span:
    """From one time on the clock to another; those without an offset are in the zone."""
    begins = _moments(first, zone)[0]
    return Span(begins, max(begins, _moments(last, zone)[1]), closed)


def _moments(at: datetime, zone: ZoneInfo) -> tuple[Micros, Micros]:
    """The first and the last moment at which the clock shows this."""
    if at.tzinfo is not None:
        moment = from_datetime(at)
        return moment, moment
    earlier, later = (from_datetime(at.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return earlier, max(earlier, later)


def days(first: date, last: date, zone: ZoneInfo, *, closed: bool = False) -> Span:
    """From the beginning of one day to the end of another."""
    return between(datetime.combine(first, time.min), datetime.combine(last, time.max), zone, closed=closed)


def unit_of(day: date, unit: Unit) -> tuple[date, date]:
    """The first and the last day of the week (from Monday on), month, quarter or year that a day lies in."""
    if unit == "day":
        return day, day
    if unit == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    months = _MONTHS[unit]
    first = day.replace(month=(day.month - 1) // months * months + 1, day=1)
    month = first.month + months - 1
    return first, first.replace(month=month, day=monthrange(first.year, month)[1])


def shifted(day: date, count: int, unit: Unit) -> date:
    """So many units later, or earlier; where a month is too short, its last day. Raises ValueError, OverflowError."""
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    month = day.year * 12 + day.month - 1 + count * _MONTHS[unit]
    year, month = divmod(month, 12)
    if not 1 <= year <= 9999:
        raise ValueError("no such year")
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
