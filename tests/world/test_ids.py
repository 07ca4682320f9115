"""Fresh ids have the shape that is parsed, and are never the same twice."""

import random

import pytest

from kelpie.core.ids import AgentId
from kelpie.world.ids import RandomIds, SeededIds


def test_fresh_ids_parse_and_differ() -> None:
    ids = RandomIds()
    drawn = [ids.new(AgentId) for _ in range(2000)]
    assert all(AgentId.parse(one) == one for one in drawn)
    assert len(set(drawn)) == len(drawn)
    assert {one[20 + len("agent-") - 1] for one in drawn} == set("89ab"), "all four variants come up"


def test_ids_of_rows_are_in_the_order_in_which_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_800_000_000 * 10**9
    monkeypatch.setattr("kelpie.world.ids.time.time_ns", lambda: now)
    ids, drawn = RandomIds(), list[str]()
    for _ in range(1000):
        now += 1_000_000 + ids.secret()[0] * 10**8
        drawn.append(ids.new(AgentId))
    assert sorted(drawn) == drawn and all(AgentId.parse(one) for one in drawn)
    assert len({one[-12:] for one in drawn}) == len({ids.uuid()[:8] for _ in drawn}) == 1000, "the rest is random"
    now = 1_500_000_000 * 10**9  # a clock that is wrong
    assert AgentId.parse(ids.new(AgentId))


def test_the_same_seed_gives_the_same_ids() -> None:
    one, other = SeededIds(random.Random(7)), SeededIds(random.Random(7))
    assert [one.new(AgentId) for _ in range(5)] == [other.new(AgentId) for _ in range(5)]
    assert AgentId.parse(one.new(AgentId))
