"""Results of deterministic tools: kept for exactly what they are results of, for a time, and within bounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kelpie.core.ids import AgentId, ToolId
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.tools.calls.interface import Outcome
from kelpie.tools.custom import result_cache
from kelpie.tools.custom.result_cache import KEPT_US, RESULT_CHARS_MAX, ResultCache, result_key
from kelpie.tools.custom.tool_environment import ToolEnvironment
from kelpie.world.clock import SystemClock

ANN, BOB = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{number}") for number in (1, 2))
TOOL = Tool(ToolId("tool-00000000-0000-4000-8000-000000000001"), "sure", ToolType.custom, {}, 0, 0)
OTHER = replace(TOOL, id=ToolId("tool-00000000-0000-4000-8000-000000000002"))
AROUND = ToolEnvironment({"KEY": "old"}, {"blocks": ["a"]})


class SetClock(SystemClock):
    at = 1_000 * KEPT_US

    def now(self) -> int:
        return self.at


@pytest.mark.parametrize(
    ("tool", "agent", "around", "arguments"),
    [
        (OTHER, ANN, AROUND, {"x": 1}),
        (replace(TOOL, version=TOOL.version + 1), ANN, AROUND, {"x": 1}),
        (TOOL, BOB, AROUND, {"x": 1}),
        (TOOL, ANN, replace(AROUND, env={"KEY": "new"}), {"x": 1}),
        (TOOL, ANN, replace(AROUND, env={"KEY": "old", "MORE": ""}), {"x": 1}),
        (TOOL, ANN, replace(AROUND, env={}), {"x": 1}),
        (TOOL, ANN, replace(AROUND, state={"blocks": ["b"]}), {"x": 1}),
        (TOOL, ANN, replace(AROUND, state=None), {"x": 1}),
        (TOOL, ANN, AROUND, {"x": 2}),
        (TOOL, ANN, AROUND, {"x": "1"}),
        (TOOL, ANN, AROUND, {}),
        (TOOL, ANN, AROUND, {"x": 1, "y": None}),
    ],
)
def test_whatever_a_result_may_depend_on_makes_it_another(
    tool: Tool, agent: AgentId, around: ToolEnvironment, arguments: Mapping[str, Any]
) -> None:
    assert result_key(tool, agent, around, arguments) != result_key(TOOL, ANN, AROUND, {"x": 1})


def test_the_order_of_arguments_and_variables_is_no_difference() -> None:
    around = ToolEnvironment({"A": "1", "B": "2"})
    turned = ToolEnvironment({"B": "2", "A": "1"})
    assert result_key(TOOL, ANN, around, {"x": 1, "y": 2}) == result_key(TOOL, ANN, turned, {"y": 2, "x": 1})


def test_a_result_is_kept_for_its_time_and_uses_nothing_again() -> None:
    clock = SetClock()
    cache = ResultCache(clock)
    cache.put("key", Outcome("fine", cpu_us=5, memory_peak_bytes=7, value=[1]))
    assert cache.get("other") is None
    clock.at += KEPT_US - 1
    kept = cache.get("key")
    assert kept is not None and (kept.text, kept.value, kept.cpu_us, kept.memory_peak_bytes) == ("fine", [1], 0, 0)
    clock.at += 1
    assert cache.get("key") is None
    cache.put("key", Outcome("new"))
    clock.at -= 1
    assert cache.get("key") is None, "nobody knows how old it is when the clock went back"


def test_failures_and_long_results_are_not_kept() -> None:
    cache = ResultCache(SetClock())
    cache.put("failed", Outcome("no", ok=False))
    cache.put("long", Outcome("x" * RESULT_CHARS_MAX, stdout=("y",)))
    cache.put("longest", Outcome("x" * RESULT_CHARS_MAX))
    assert [cache.get(key) is not None for key in ("failed", "long", "longest")] == [False, False, True]


def test_the_one_that_was_not_used_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "RESULTS_MAX", 3)
    cache = ResultCache(SetClock())
    for key in "abc":
        cache.put(key, Outcome(key))
    cache.get("a")
    cache.put("d", Outcome("d"))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_all_of_them_together_are_bounded_and_what_is_replaced_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "CHARS_MAX", 100)
    cache = ResultCache(SetClock())
    for _ in range(20):
        cache.put("same", Outcome("x" * 40))
    cache.put("other", Outcome("y" * 40, stderr=("z" * 10,)))
    assert cache.get("same") is not None and cache.get("other") is not None
    cache.put("third", Outcome("y" * 40))
    assert [key for key in ("same", "other", "third") if cache.get(key)] == ["other", "third"]
