"""Due times of cron expressions in time zones, around the nights when the clock is changed."""

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import InvalidInput
from kelpie.core.time import MICROS_PER_SECOND, Micros, as_datetime, from_datetime
from kelpie.core.triggers.recurrence import NAMED, Recurrence, check_recurrence

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600 * MICROS_PER_SECOND


def at(*fields: int, fold: int = 0) -> Micros:
    year, month, day, *rest = fields
    return from_datetime(datetime(year, month, day, *rest, tzinfo=BERLIN, fold=fold))  # type: ignore[arg-type]


def shown(times: list[Micros]) -> list[str]:
    return [as_datetime(each).astimezone(BERLIN).isoformat() for each in times]


def test_a_time_that_does_not_exist_is_due_after_the_gap() -> None:
    nightly = Recurrence("30 2 * * *", "Europe/Berlin")
    assert shown(nightly.between(at(2026, 3, 28), at(2026, 3, 31), 10)) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_exists_twice_is_due_once() -> None:
    nightly = Recurrence("30 2 * * *", "Europe/Berlin")
    assert shown(nightly.between(at(2026, 10, 24), at(2026, 10, 27), 10)) == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    # Asked in the second of the two hours, the first one is over.
    after = nightly.next_after(at(2026, 10, 25, 2, 10, fold=1))
    assert after is not None and shown([after]) == ["2026-10-26T02:30:00+01:00"]


def test_every_half_hour_goes_by_elapsed_time() -> None:
    often = Recurrence("*/30 * * * *", "Europe/Berlin")
    times = often.between(at(2026, 10, 25, 1, 30), at(2026, 10, 25, 4, 0), 100)
    assert [later - earlier for earlier, later in pairwise(times)] == [HOUR // 2] * 6


# What is due every few minutes is looked at for fewer days: it is due as often.
DAYS = dict.fromkeys(["30 2 * * *", "0 9 * * 1-5", "0 0 29 2 *", "15 1,2,3 * * *", "0 */3 * * *", "@daily"], 60)
DAYS["*/7 * * * *"] = 4


@given(
    st.sampled_from(sorted(DAYS)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.integers(from_datetime(datetime(2025, 1, 1)), from_datetime(datetime(2027, 12, 31))),
)
def test_times_follow_each_other_and_the_newest_are_the_last_of_them(
    expression: str, zone: str, moment: Micros
) -> None:
    recurrence = Recurrence(expression, zone)
    after = recurrence.next_after(moment)
    assert after is not None and after > moment
    assert after % (60 * MICROS_PER_SECOND) == 0
    until = moment + DAYS[expression] * 24 * HOUR
    all_times = recurrence.between(moment, until, 20_000)
    assert all_times == sorted(set(all_times))
    newest = recurrence.newest(until, 20)
    wanted = [each for each in newest if each > moment]
    assert wanted == (all_times[-len(wanted) :] if wanted else [])


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "every day", "0 24 * * *", "0 0 0 * *", "x" * 300],
)
def test_a_wrong_expression_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="recurrence_rule"):
        check_recurrence(text, "UTC", "recurrence_rule")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Mars/Base"):
        check_recurrence("0 9 * * *", "Mars/Base", "recurrence_rule")


@pytest.mark.parametrize("name", NAMED)
def test_names_stand_for_expressions(name: str) -> None:
    assert check_recurrence(name.upper(), "UTC", "f").next_after(0) == Recurrence(NAMED[name]).next_after(0)
