"""Working memory by tool: an agent keeps, counts and finds values of its own, and is told plainly what cannot be."""

import json
from typing import Any

import pytest

from kelpie.core.errors import CallerError, Conflict, InvalidInput, NotFound, ToolError
from tests.tools.workshop import ANN, BEN, NOW, Workshop

SECOND = 1_000_000


def got(shop: Workshop, tool: str, **arguments: Any) -> Any:
    return json.loads(shop.run(f"working_memory_{tool}", **arguments).text)


def test_what_an_agent_sets_it_reads_back_and_nobody_else_does(shop: Workshop) -> None:
    told = shop.run("working_memory_set", key="plan/today", value={"steps": [1, "two"]}, ttl_seconds=60).text
    assert told == "Stored under 'plan/today' (version 1, until 2023-11-14T22:14:20+00:00)."
    assert got(shop, "get", key="plan/today") == {
        "key": "plan/today",
        "value": {"steps": [1, "two"]},
        "version": 1,
        "created_at": "2023-11-14T22:13:20+00:00",
        "updated_at": "2023-11-14T22:13:20+00:00",
        "expires_at": "2023-11-14T22:14:20+00:00",
    }
    for arguments in ({"by": BEN}, {"now": NOW + 60 * SECOND}):
        with pytest.raises(ToolError, match="has no entry 'plan/today'"):
            shop.run("working_memory_get", key="plan/today", **arguments)


def test_updates(shop: Workshop) -> None:
    assert got(shop, "update", key="n", increment=2)["value"] == 2
    assert got(shop, "update", key="n", increment=-0.5, ttl_seconds=5)["value"] == 1.5
    assert got(shop, "update", key="l", append={"a": 1})["value"] == [{"a": 1}]
    assert got(shop, "update", key="l", append=None)["value"] == [{"a": 1}, None]
    assert got(shop, "update", key="o", merge={"a": 1, "b": {"c": None}})["value"] == {"a": 1, "b": {}}
    assert got(shop, "update", key="n", ttl_seconds=9)["expires_at"] == "2023-11-14T22:13:29+00:00"
    assert shop.run("working_memory_delete", key="n").text == "Deleted 'n'."


def test_lists(shop: Workshop) -> None:
    for number in range(30):
        shop.run("working_memory_set", key=f"k/{number:02}", value=number, now=NOW + number * SECOND)
    shop.run("working_memory_set", key="long", value="x" * 600, now=NOW + 99 * SECOND)
    first = got(shop, "list", prefix="k/")
    assert [entry["value"] for entry in first["entries"]] == list(range(20)) and first["more_after"] == "k/19"
    rest = got(shop, "list", prefix="k/", after="k/19")
    assert [entry["value"] for entry in rest["entries"]] == list(range(20, 30)) and "more_after" not in rest
    since = got(shop, "list", updated_from="2023-11-14T22:13:48")["entries"]
    assert [entry["key"] for entry in since] == ["long", "k/29", "k/28"]
    assert since[0]["cut"] and len(since[0]["value"]) == 501
    assert got(shop, "list", updated_to="2023-11-13")["entries"] == []
    assert got(shop, "list", by=BEN)["entries"] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "problem"),
    [
        ("set", {"key": "", "value": 1}, InvalidInput, "key: must have 1"),
        ("set", {"key": "k", "value": "x" * 70_000}, InvalidInput, "the limit is 65536"),
        ("set", {"key": "k", "value": 1, "ttl_seconds": 0}, InvalidInput, "ttl_seconds"),
        ("set", {"key": "there", "value": 1, "if_version": 0}, Conflict, "has version 1"),
        ("set", {"key": "k"}, ToolError, "'value' is missing"),
        ("update", {"key": "there", "increment": 1}, InvalidInput, "the value is text"),
        ("update", {"key": "k", "increment": 1, "append": 2}, ToolError, "increment and append"),
        ("update", {"key": "k"}, ToolError, "Nothing was changed: give"),
        ("update", {"key": "k", "ttl_seconds": 5}, NotFound, "k"),
        ("update", {"key": "k", "increment": "NaN"}, InvalidInput, "too large to be stored"),
        ("get", {"key": "k"}, ToolError, "has no entry"),
        ("delete", {"key": "k"}, NotFound, "k"),
        ("list", {"limit": 101}, ToolError, "from 1 to 100"),
        ("list", {"updated_from": "soon"}, ToolError, "'updated_from'"),
    ],
)
def test_a_failure_says_why_and_changes_nothing(
    shop: Workshop, tool: str, arguments: dict[str, Any], kind: type[Exception], problem: str
) -> None:
    shop.run("working_memory_set", key="there", value="text")
    before = got(shop, "list")
    savepoint = shop.tx.begin_nested()  # as around every call
    with pytest.raises((CallerError, ToolError), match=problem) as raised:
        shop.run(f"working_memory_{tool}", **arguments)
    savepoint.rollback()
    assert isinstance(raised.value, kind)
    assert got(shop, "list") == before


def test_the_tools_are_the_agents_own(shop: Workshop) -> None:
    shop.run("working_memory_set", key="k", value=1, by=ANN)
    shop.run("working_memory_update", key="k", increment=5, by=BEN)
    assert (got(shop, "get", key="k")["value"], got(shop, "get", key="k", by=BEN)["value"]) == (1, 5)
