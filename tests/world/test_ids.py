"""Fresh ids have the shape that is parsed, and are never the same twice."""

import random

from kelpie.core.ids import AgentId
from kelpie.world.ids import RandomIds, SeededIds


def test_fresh_ids_parse_and_differ() -> None:
    ids = RandomIds()
    drawn = [ids.new(AgentId) for _ in range(2000)]
    assert all(AgentId.parse(one) == one for one in drawn)
    assert len(set(drawn)) == len(drawn)
    assert {one[20 + len("agent-") - 1] for one in drawn} == set("89ab"), "all four variants come up"


def test_the_same_seed_gives_the_same_ids() -> None:
    one, other = SeededIds(random.Random(7)), SeededIds(random.Random(7))
    assert [one.new(AgentId) for _ in range(5)] == [other.new(AgentId) for _ in range(5)]
    assert AgentId.parse(one.new(AgentId))
