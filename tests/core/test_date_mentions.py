"""Dates inside questions: what they mean, what is no date, and that no text breaks the reader."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.dates.date_mentions import MENTIONS_MAX, Mention, mentions
from kelpie.core.time import as_datetime, from_datetime

NOW = from_datetime(datetime(2024, 6, 12, 15, tzinfo=UTC))  # a Wednesday
ZONE = ZoneInfo("UTC")
SPANS = {
    "What did we decide in May 2023?": ("2023-05-01", "2023-05-31"),
    "Who called on 7 July, 2023?": ("2023-07-07", "2023-07-07"),
    "Who called on July 7th 2023?": ("2023-07-07", "2023-07-07"),
    "Who called on the 8th of December 2023?": ("2023-12-08", "2023-12-08"),
    "What happened on 2023-02-28?": ("2023-02-28", "2023-02-28"),
    "Invoices of 2023-02": ("2023-02-01", "2023-02-28"),
    "Where did she travel in 2021?": ("2021-01-01", "2021-12-31"),
    "the plan for summer 2021": ("2021-06-01", "2021-08-31"),
    "skiing in winter 2022": ("2022-12-01", "2023-02-28"),
    "What happened on 31 February 2023?": ("2023-02-01", "2023-02-28"),
    "What did I say yesterday?": ("2024-06-11", "2024-06-11"),
    "the meeting last Friday": ("2024-06-07", "2024-06-07"),
    "notes of last week": ("2024-06-03", "2024-06-09"),
    "what we ordered three weeks ago": ("2024-05-22", "2024-05-22"),
    "Which film did we see this month?": ("2024-06-01", "2024-06-30"),
}
NONE = (
    "May I borrow the car?", "The march was long", "Did she fall down the stairs?", "Room 2023 is free",
    "What is 12 times 30?", "spring water", "It may rain", "", "the year", "May 45",
)  # fmt: skip


def days(mention: Mention) -> list[tuple[str, str]]:
    return [
        (as_datetime(span.first).date().isoformat(), as_datetime(span.last).date().isoformat())
        for span in mention.spans
    ]


@pytest.mark.parametrize("question", SPANS)
def test_a_date_in_a_question_is_a_span(question: str) -> None:
    (found,) = mentions(question, NOW, ZONE)
    assert days(found) == [SPANS[question]]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_date_is_left_alone(text: str) -> None:
    assert mentions(text, NOW, ZONE) == ()


def test_without_a_year_it_may_be_any_of_the_last_ones() -> None:
    (found,) = mentions("Where did we camp in July?", NOW, ZONE)
    assert ("2024-07-01", "2024-07-31") in days(found) and ("2021-07-01", "2021-07-31") in days(found)
    (season,) = mentions("What did we build last spring?", NOW, ZONE)
    assert days(season)[0] == ("2024-03-01", "2024-05-31")
    (leap,) = mentions("the party on 29 February", NOW, ZONE)
    assert [first for first, _ in days(leap)] == ["2024-02-29", "2020-02-29", "2016-02-29"]


def test_days_are_those_of_the_zone() -> None:
    (found,) = mentions("yesterday", NOW, ZoneInfo("Pacific/Auckland"))  # where it is the 13th already
    assert as_datetime(found.spans[0].first).isoformat() == "2024-06-11T12:00:00+00:00"


def test_a_time_is_nearer_the_less_it_lies_outside() -> None:
    (found,) = mentions("on 7 July 2023", NOW, ZONE)
    moments = [from_datetime(datetime(2023, 7, day, tzinfo=UTC)) for day in (7, 9, 11, 25)]
    near = [found.nearness(moment, moment) for moment in moments]
    assert near[0] == 1.0 and near == sorted(near, reverse=True) and near[1] > near[2] > near[3] == 0.0
    assert found.nearness(moments[0] - 10**15, moments[3]) == 1.0  # a span around it


@given(st.text(max_size=200) | st.lists(st.sampled_from([*SPANS, *NONE]), max_size=12).map(" ".join))
def test_any_text_can_be_read(text: str) -> None:
    found = mentions(text, NOW, ZONE)
    assert len(found) <= MENTIONS_MAX and all(mention.spans and mention.words for mention in found)
