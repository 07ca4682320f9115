"""Saying and searching: what is found, in which order, and that the answer says how it was searched."""

import json
from typing import Any, cast

import pytest

from kelpie.core.conversations.messages import Message, MessageSearch, Reasoning, Role, Text, ToolCall, ToolReturn
from kelpie.core.dates.dates import ago
from kelpie.core.errors import ToolError
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, MessageId, StepId
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.search.queries import LikelyItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.conversations import message_search, messages
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.argument_check import check_arguments
from kelpie.tools.calls.interface import CallContext, Precomputed
from tests.tools.workshop import ANN, BEN, NOW, Workshop, make_agent

HOUR = 3600 * MICROS_PER_SECOND


def message_id(number: int) -> MessageId:
    return MessageId(f"message-00000000-0000-4000-8000-{number:012}")


def say(shop: Workshop, number: int, role: Role, text: str, at: int = NOW, agent_id: AgentId = ANN) -> None:
    messages.append(shop.tx, [Message(message_id(number), agent_id, role, at, (Text(text),) if text else ())])


def search(shop: Workshop, **arguments: Any) -> dict[str, Any]:
    return json.loads(shop.run("conversation_search", **arguments).text)


def contents(shop: Workshop, **arguments: Any) -> list[str]:
    return [result["content"] for result in search(shop, **arguments)["results"]]


def test_send_message_answers_what_clients_know(shop: Workshop) -> None:
    assert shop.run("send_message", message="hi").text == "Sent message successfully."


def test_a_result_says_who_when_and_how(shop: Workshop) -> None:
    say(shop, 1, Role.user, "my name is Dora", NOW - 2 * HOUR)
    found = search(shop, query="Dora", timezone="America/New_York")
    assert found["search_mode"] == "full_text" and "by words" in found["message"]
    (result,) = found["results"]
    assert result | {"relevance": None} == {
        "timestamp": "2023-11-14T15:13:20-05:00",
        "time_ago": "2h ago",
        "role": "user",
        "content": "my name is Dora",
        "relevance": None,
    }
    assert result["relevance"]["search_mode"] == "full_text" and result["relevance"]["score"] > 0


def test_only_what_this_agent_and_its_user_said_is_found(shop: Workshop) -> None:
    say(shop, 1, Role.user, "apple pie")
    say(shop, 2, Role.assistant, "apple juice")
    say(shop, 3, Role.system, "apple rules")
    say(shop, 4, Role.user, "apple of Ben", agent_id=BEN)
    returned = ToolReturn("c", "t", True, "apple result")
    messages.append(shop.tx, [Message(message_id(5), ANN, Role.tool, NOW, tool_returns=(returned,))])
    messages.append(shop.tx, [Message(message_id(6), ANN, Role.assistant, NOW, (Reasoning("apple?"),))])
    assert sorted(contents(shop, query="apple")) == ["apple juice", "apple pie"]
    assert sorted(contents(shop)) == ["apple juice", "apple pie"]
    assert contents(shop, query="apple", roles=["assistant"]) == ["apple juice"]
    assert contents(shop, query="apple", roles=["user", "tool"]) == ["apple pie"]
    assert contents(shop, query="apple", roles=["tool"]) == []


def test_what_the_agent_writes_with_the_call_itself_is_no_result(shop: Workshop) -> None:
    step = StepId("step-00000000-0000-4000-8000-000000000001")
    say(shop, 1, Role.assistant, "apple juice")
    own = Message(message_id(2), ANN, Role.assistant, NOW, (Text("let me look for the apple"),), step_id=step)
    messages.append(shop.tx, [own])
    assert len(contents(shop, query="apple")) == 2
    builtin = BUILTINS["conversation_search"]
    assert builtin.run is not None
    for query in ("apple", ""):
        call = CallContext(make_agent(ANN), NOW, "00000000-0000-4000-8000-000000000001", step_id=step)
        found = json.loads(builtin.run(shop.tx, call, check_arguments(builtin.schema, {"query": query})).text)
        assert [result["content"] for result in found["results"]] == ["apple juice"]


def test_a_search_in_one_agents_messages_filters_before_it_cuts(shop: Workshop) -> None:
    say(shop, 1, Role.assistant, "apple juice")
    for number in range(2, 5):
        say(shop, number, Role.user, "apple pie")
    numbers: list[set[int]] = []

    class Finder:
        def search(self, tx: Any, kind: Any, scopes: Any, query: Any, limit: int, only: Any = None) -> list[Any]:
            numbers.append(set(only))
            return []

    asked = MessageSearch("apple", 1, ANN, roles=(Role.assistant,), mode="vector")
    vector = Vector("m", b"\0" * 4, b"\0")
    message_search.nearest(shop.tx, cast("Any", Finder()), DEFAULT_ORGANIZATION, {ANN: "m"}, asked, {"m": vector})
    assert numbers == [{shop.number(message_id(1))}], "only those that pass the other filters may be found at all"


def test_without_a_query_the_newest_come_first(shop: Workshop) -> None:
    for number in range(1, 130):
        say(shop, number, Role.user, f"word {number}", NOW + number)
    assert contents(shop, limit=2) == ["word 129", "word 128"]
    assert len(contents(shop)) == 5
    assert len(contents(shop, limit=100, query="word")) == 100


def test_filters_come_before_the_cut(shop: Workshop) -> None:
    for number in range(1, 130):
        say(shop, number, Role.user, f"apple {number}", NOW + number)
    say(shop, 200, Role.assistant, "one apple among many other words", NOW)
    assert contents(shop, query="apple", roles=["assistant"], limit=1) == ["one apple among many other words"]
    assert contents(shop, roles=["assistant"], limit=1) == ["one apple among many other words"]


def test_dates_are_inclusive_and_in_the_agents_zone(shop: Workshop) -> None:
    say(shop, 1, Role.user, "noon in UTC on the 14th", 1_699_963_200 * MICROS_PER_SECOND)
    say(shop, 2, Role.user, "half an hour before midnight UTC", 1_700_004_600 * MICROS_PER_SECOND)
    both = ["half an hour before midnight UTC", "noon in UTC on the 14th"]
    assert contents(shop, start_date="2023-11-14", end_date="2023-11-14") == both
    assert contents(shop, start_date="2023-11-14T12:00", end_date="2023-11-14T12:00:00Z") == both[1:]
    assert contents(shop, start_date="2023-11-15", timezone="Asia/Tokyo") == both[:1]
    assert contents(shop, end_date="2023-11-13") == []


def test_what_an_agent_sent_by_tool_counts_as_said(shop: Workshop) -> None:
    call = ToolCall("c", "send_message", '{"message": "hello Dora"}')
    messages.append(shop.tx, [Message(message_id(1), ANN, Role.assistant, NOW, tool_calls=(call,))])
    assert contents(shop) == ["hello Dora"]


def test_what_was_near_is_shown_only_if_it_is_the_agents_and_passes_the_filters(shop: Workshop) -> None:
    say(shop, 1, Role.user, "tea")
    say(shop, 2, Role.user, "coffee of Ben", agent_id=BEN)
    say(shop, 3, Role.assistant, "cocoa")
    precomputed = Precomputed(
        messages=NearItems({"model": LikelyItems([(shop.number(message_id(n)), 0.9) for n in (1, 2, 3, 4)])}),
        by_vectors=True,
    )
    assert contents(shop, query="drinks", precomputed=precomputed) == ["tea", "cocoa"]
    assert contents(shop, query="drinks", roles=["user"], precomputed=precomputed) == ["tea"]


def test_nothing_found_is_said_with_the_reason(shop: Workshop) -> None:
    found = search(shop, query="zebra")
    assert found["results"] == [] and found["message"].startswith("Nothing found.")
    assert contents(shop, query='?!* " OR') == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"start_date": "query"}, "'start_date' is not a date: 'query'"),
        ({"end_date": "2023-13-01"}, "'end_date' is not a date"),
        ({"start_date": "2024-01-02", "end_date": "2024-01-01"}, "is before"),
        ({"limit": 0}, "'limit' must be from 1 to 100"),
        ({"limit": 101}, "'limit' must be from 1 to 100"),
        ({"roles": ["system"]}, "must be one of"),
        ({"timezone": "Mars/Olympus"}, "time zone 'Mars/Olympus' is unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused(shop: Workshop, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        search(shop, **arguments)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s ago"), (0, "0s ago"), (59, "59s ago"), (60, "1m ago"), (7199, "1h ago"), (200_000, "2d ago")],
)
def test_how_long_ago(seconds: int, text: str) -> None:
    assert ago(NOW - seconds * MICROS_PER_SECOND, NOW) == text


# --- by date ----------------------------------------------------------------------------------------------------------


def by_date(shop: Workshop, **arguments: Any) -> dict[str, Any]:
    return json.loads(shop.run("conversation_search_date", **arguments).text)


def test_a_stretch_of_time_is_read_page_by_page_oldest_first(shop: Workshop) -> None:
    for number in range(45):
        say(shop, number, Role.user if number % 2 else Role.assistant, f"word {number}", NOW - (45 - number) * HOUR)
    say(shop, 100, Role.user, "of Ben", NOW - HOUR, BEN)
    silent = ToolCall("c", "memory", "{}")
    messages.append(shop.tx, [Message(message_id(101), ANN, Role.assistant, NOW - HOUR, tool_calls=(silent,))])
    pages = [by_date(shop, start_date="last 7 days", page=page) for page in range(4)]
    said = [result["content"] for page in pages for result in page["results"]]
    assert said == [f"word {number}" for number in range(45)]
    assert [page["more"] for page in pages] == [True, True, False, False]
    assert pages[3]["message"] == "No messages on page 3."
    assert (pages[0]["from"], pages[0]["to"]) == ("2023-11-07T22:13:20+00:00", "2023-11-14T22:13:20+00:00")


def test_the_end_of_a_stretch_is_a_whole_day_in_the_agents_zone(shop: Workshop) -> None:
    say(shop, 1, Role.user, "late", 1_700_002_799 * MICROS_PER_SECOND)  # 23:59:59 in Berlin
    say(shop, 2, Role.user, "next day", 1_700_002_800 * MICROS_PER_SECOND)
    berlin = {"timezone": "Europe/Berlin", "start_date": "2023-11-14"}
    assert [r["content"] for r in by_date(shop, end_date="2023-11-14", **berlin)["results"]] == ["late"]
    assert [r["content"] for r in by_date(shop, end_date="2023-11-14T23:59:60", **berlin)["results"]] == [
        "late",
        "next day",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"start_date": "2024-01-02", "end_date": "2024-01-01"}, "is before"),
        ({"start_date": "2023-02-29"}, "'start_date' is not a date"),
        ({"start_date": "today", "page": -1}, "'page' must be from 0"),
        ({"end_date": "today"}, "start_date"),
    ],
)
def test_a_stretch_that_cannot_be_is_refused(shop: Workshop, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        by_date(shop, **arguments)
