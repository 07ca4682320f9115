"""Dates: what a text stands for, in every zone, to the microsecond; and that no text breaks anything."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kelpie.core.dates import dates
from kelpie.core.errors import ToolError
from kelpie.core.time import MICROS_PER_SECOND, as_datetime, from_datetime

UTC_ZONE, BERLIN, NEW_YORK = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
TOKYO, SAO_PAULO, APIA, HAVANA = (
    ZoneInfo(name) for name in ("Asia/Tokyo", "America/Sao_Paulo", "Pacific/Apia", "America/Havana")
)
ZONES = st.sampled_from(
    [
        UTC_ZONE,
        BERLIN,
        NEW_YORK,
        TOKYO,
        SAO_PAULO,
        APIA,
        HAVANA,
        *map(ZoneInfo, ("Asia/Kathmandu", "Australia/Lord_Howe")),
    ]
)
WEDNESDAY = from_datetime(datetime(2024, 2, 28, 15, 30, tzinfo=UTC))
SECOND, HOUR, DAY = (n * MICROS_PER_SECOND for n in (1, 3600, 86_400))


def span(text: str, zone: ZoneInfo = UTC_ZONE, now: int = WEDNESDAY) -> tuple[int, int]:
    """As the start and the end at once: from its first to its last moment."""
    since, until = dates.bounds(("start_date", text), ("end_date", text), zone, now)
    assert since is not None and until is not None
    return since, until


def told(text: str, zone: ZoneInfo = UTC_ZONE, now: int = WEDNESDAY) -> tuple[str, str]:
    first, last = span(text, zone, now)
    return tuple(as_datetime(at).replace(tzinfo=None).isoformat() for at in (first, last))  # type: ignore[return-value]


def moment(text: str, zone: ZoneInfo = UTC_ZONE, now: int = WEDNESDAY) -> str:
    first, last = told(text, zone, now)
    assert first == last
    return first


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2024-01-31T14:30", "2024-01-31T14:30:00"),
        ("2024-01-31T14", "2024-01-31T14:00:00"),
        ("2024-01-31 14:30:05.25", "2024-01-31T14:30:05.250000"),
        ("2024-01-31T14:30:05,123456789Z", "2024-01-31T14:30:05.123456"),
        ("2024-01-31t14:30:05z", "2024-01-31T14:30:05"),
        ("20240131T143005Z", "2024-01-31T14:30:05"),
        ("2024-01-31T14:30:00+05:30", "2024-01-31T09:00:00"),
        ("2024-01-31T14:30 -0800", "2024-01-31T22:30:00"),
        ("2024-01-31T14:30-08", "2024-01-31T22:30:00"),
        ("2024-01-31T14:30:00-00:00", "2024-01-31T14:30:00"),
        ("2024-01-31 14:30 UTC", "2024-01-31T14:30:00"),
        ("2024-01-31 14:30 gmt", "2024-01-31T14:30:00"),
        ("2024-01-31T14:30[Asia/Tokyo]", "2024-01-31T05:30:00"),
        ("2024-01-31 14:30 Europe/Berlin", "2024-01-31T13:30:00"),
        ("2024-W05-3T10:00", "2024-01-31T10:00:00"),
        ("2024-01-31T24:00", "2024-02-01T00:00:00"),
        ("1700000000", "2023-11-14T22:13:20"),
        ("1700000000.5", "2023-11-14T22:13:20.500000"),
        ("1700000000123", "2023-11-14T22:13:20.123000"),
        ("1700000000123456", "2023-11-14T22:13:20.123456"),
        ("1700000000123456789", "2023-11-14T22:13:20.123456"),
        ("-86400", "1969-12-31T00:00:00"),
        ("@0", "1970-01-01T00:00:00"),
        ("4102444800", "2100-01-01T00:00:00"),
        ("2100-06-01T12:00:00Z", "2100-06-01T12:00:00"),
        ("2038-01-19T03:14:08Z", "2038-01-19T03:14:08"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
        ("2016-12-31T18:59:60-05:00", "2017-01-01T00:00:00"),
        ("2016-12-31 23:59:60", "2017-01-01T00:00:00"),
        ("20161231T235960Z", "2017-01-01T00:00:00"),
        ("2024-02-29T23:59:60.5Z", "2024-03-01T00:00:00.500000"),
        ("  2024-01-31T14:30  ", "2024-01-31T14:30:00"),
        ("now", "2024-02-28T15:30:00"),
        ("3 hours ago", "2024-02-28T12:30:00"),
        ("an hour ago", "2024-02-28T14:30:00"),
        ("90 minutes ago", "2024-02-28T14:00:00"),
    ],
)
def test_a_moment(text: str, at: str) -> None:
    assert moment(text) == at


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2024-02-29", "2024-02-29", "2024-02-29"),
        ("20240229", "2024-02-29", "2024-02-29"),
        ("2024-060", "2024-02-29", "2024-02-29"),
        ("2024-W09-4", "2024-02-29", "2024-02-29"),
        ("2024-02", "2024-02-01", "2024-02-29"),
        ("2023-02", "2023-02-01", "2023-02-28"),
        ("2024-W09", "2024-02-26", "2024-03-03"),
        ("2024", "2024-01-01", "2024-12-31"),
        ("9999-12-31", "9999-12-31", "9999-12-31"),
        ("0001-01-01", "0001-01-01", "0001-01-01"),
        ("2024-01-01/2024-01-31", "2024-01-01", "2024-01-31"),
        ("2024-01-01 to yesterday", "2024-01-01", "2024-02-27"),
        ("2024-01-01..2024-01-31", "2024-01-01", "2024-01-31"),
        ("today", "2024-02-28", "2024-02-28"),
        ("Yesterday", "2024-02-27", "2024-02-27"),
        ("tomorrow", "2024-02-29", "2024-02-29"),
        ("this week", "2024-02-26", "2024-03-03"),
        ("last week", "2024-02-19", "2024-02-25"),
        ("this  month", "2024-02-01", "2024-02-29"),
        ("last month", "2024-01-01", "2024-01-31"),
        ("last quarter", "2023-10-01", "2023-12-31"),
        ("this year", "2024-01-01", "2024-12-31"),
        ("previous year", "2023-01-01", "2023-12-31"),
        ("3 days ago", "2024-02-25", "2024-02-25"),
        ("a week ago", "2024-02-21", "2024-02-21"),
        ("two months ago", "2023-12-28", "2023-12-28"),
        ("monday", "2024-02-26", "2024-02-26"),
        ("wednesday", "2024-02-28", "2024-02-28"),
        ("last wednesday", "2024-02-21", "2024-02-21"),
        ("on Friday", "2024-02-23", "2024-02-23"),
    ],
)
def test_whole_days(text: str, first: str, last: str) -> None:
    assert told(text) == (f"{first}T00:00:00", f"{last}T23:59:59.999999")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("last 7 days", "2024-02-21T15:30:00"),
        ("past week", "2024-02-21T15:30:00"),
        ("in the past 7 days", "2024-02-21T15:30:00"),
        ("the last 24 hours", "2024-02-27T15:30:00"),
        ("last hour", "2024-02-28T14:30:00"),
        ("last day", "2024-02-27T15:30:00"),
        ("last 3 months", "2023-11-28T15:30:00"),
        ("last two years", "2022-02-28T15:30:00"),
    ],
)
def test_stretches_up_to_now(text: str, first: str) -> None:
    assert told(text) == (first, "2024-02-28T15:30:00")


def test_a_month_that_is_too_short_ends_earlier() -> None:
    leap = from_datetime(datetime(2024, 2, 29, 12, tzinfo=UTC))
    assert told("1 year ago", now=leap)[0] == "2023-02-28T00:00:00"
    march = from_datetime(datetime(2024, 3, 31, 12, tzinfo=UTC))
    assert told("last 1 month", now=march)[0] == "2024-02-29T12:00:00"


def only_start(text: str) -> tuple[int | None, int | None]:
    return dates.bounds(("start_date", text), ("end_date", None), UTC_ZONE, WEDNESDAY)


def test_a_stretch_alone_has_both_ends_and_a_moment_is_open() -> None:
    assert only_start("last 7 days") == (WEDNESDAY - 7 * DAY, WEDNESDAY)
    assert only_start("yesterday") == span("yesterday")
    for text in ("2024-02-01", "3 hours ago", "3 days ago", "since yesterday", "since last week", "1700000000"):
        since, until = only_start(text)
        assert since is not None and until is None, text
    assert dates.bounds(("a", None), ("b", "2024-02-01"), UTC_ZONE, 0) == (None, span("2024-02-01")[1])
    assert dates.bounds(("a", None), ("b", ""), UTC_ZONE, 0) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29", "2024-02-30", "2100-02-29", "2024-13-01", "2024-00-10", "2024-366x", "2023-366", "2024-W54",
        "2024-01-31T25:00", "2024-01-31T24:01", "2024-01-31T12:60", "2024-01-31T12:30:60Z", "2024-01-31T23:59:61Z",
        "2024-01-31T14:30+25:00", "2024-01-31T14:30+05:75", "2024-01-31 14:30 Mars/Olympus", "10000-01-01",
        "0000-01-01", "99999999999999999999", "soon", "last", "last x days", "days ago", "7", "12345", "2024-01-31T",
        "T14:30", "/",
        "..", "2024-01-31/2024-01-01", "\x00", "٢٠٢٤-٠١-٣١", "last 999999 years", "999999 years ago", "x" * 101,
        "../../etc", "since",
    ],
)  # fmt: skip
def test_what_is_no_date_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(ToolError, match="'start_date' is not a date") as refused:
        only_start(text)
    assert len(str(refused.value)) < 400


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ToolError, match=r"'end_date' \(yesterday\) is before 'start_date' \(today\).*Swap") as refused:
        dates.bounds(("start_date", "today"), ("end_date", "yesterday"), UTC_ZONE, WEDNESDAY)
    assert "not end before it begins" in str(refused.value)


# --- clocks that are put forward and back ----------------------------------------------------------------------------


def test_a_time_that_never_was_is_when_the_clock_would_have_shown_it() -> None:
    assert moment("2024-03-31T02:30", BERLIN) == "2024-03-31T01:30:00" == moment("2024-03-31T03:30", BERLIN)
    assert told("2018-11-04", SAO_PAULO) == ("2018-11-04T03:00:00", "2018-11-05T01:59:59.999999")  # begins at one


def test_a_time_that_was_twice_begins_with_the_first_and_ends_with_the_second() -> None:
    assert told("2024-10-27T02:30", BERLIN) == ("2024-10-27T00:30:00", "2024-10-27T01:30:00")
    first, last = span("2024-10-27", BERLIN)
    assert last - first + 1 == 25 * HOUR
    first, last = span("2024-03-31", BERLIN)
    assert last - first + 1 == 23 * HOUR
    assert moment("2024-10-27T02:30+01:00", BERLIN) == "2024-10-27T01:30:00"


def test_hours_pass_and_days_are_counted_by_the_calendar() -> None:
    noon = from_datetime(datetime(2024, 3, 31, 12, tzinfo=BERLIN))  # the night before had an hour less
    assert span("last 24 hours", BERLIN, noon)[0] == noon - 24 * HOUR
    assert span("last 1 days", BERLIN, noon)[0] == noon - 23 * HOUR
    assert told("today", TOKYO, WEDNESDAY) == ("2024-02-28T15:00:00", "2024-02-29T14:59:59.999999")


def test_a_day_that_a_place_left_out_is_the_one_after() -> None:
    assert span("2011-12-30", APIA) == span("2011-12-31", APIA)


# --- of any -----------------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: from_datetime(at.replace(tzinfo=UTC)))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(MOMENTS, ZONES, ZONES)
def test_what_is_shown_is_read_back(at: int, zone: ZoneInfo, reader: ZoneInfo) -> None:
    text = dates.format_moment(at, zone)
    if datetime.fromisoformat(text).utcoffset().seconds % 60 == 0:  # type: ignore[union-attr]  # older ones had seconds
        assert span(text, reader) == (at, at)


@given(MOMENTS, MOMENTS, OFFSETS, OFFSETS)
def test_what_is_later_is_read_as_later(one: int, other: int, first: timezone, second: timezone) -> None:
    texts = [as_datetime(at).astimezone(zone).isoformat() for at, zone in ((one, first), (other, second))]
    read = [span(text)[0] for text in texts]
    assert (read[0] < read[1]) == (one < other)


@given(st.dates(date(1, 1, 1), date(9999, 12, 30)), ZONES)
def test_days_follow_each_other_without_a_gap(day: date, zone: ZoneInfo) -> None:
    assume(not (zone is APIA and day == date(2011, 12, 30)))
    first, last = span(day.isoformat(), zone)
    following = span((day + timedelta(days=1)).isoformat(), zone)
    assert first <= last and following[0] - last == 1


@given(st.integers(-(10**20), 10**20))
def test_any_number_is_a_moment_or_refused(number: int) -> None:
    try:
        first, last = span(str(number))
    except ToolError:
        return
    assert first <= last


_PIECES = st.sampled_from(
    ["last", "past", "this", " ", "7", "999999", "days", "week", "month", "ago", "since ", "2024", "-", "02", "29", "T",
     ":", "60", "23", "59", "Z", "+", "/", " to ", "..", "[", "]", "Europe/Berlin", "UTC", "@",
      ".", "W", "\x00", "é", "٣"]
)  # fmt: skip


@given(st.text() | st.lists(_PIECES, max_size=12).map("".join), ZONES, MOMENTS)
def test_any_text_gives_a_range_or_is_refused(text: str, zone: ZoneInfo, now: int) -> None:
    try:
        since, until = dates.bounds(("start_date", text), ("end_date", text), zone, now)
    except ToolError:
        return
    assert (since is None and until is None and not text) or (
        since is not None and until is not None and since <= until
    )
    if since is not None and until is not None:
        assert dates.format_moment(since, zone) and dates.format_moment(until, zone)
