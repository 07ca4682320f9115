"""Facts in time: at any moment at most one value, nothing lost, and what was true then can be told."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.memory.fact_timeline import StatedFact, after_deletion, evolve
from kelpie.core.memory.facts import Fact, Link, key

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")


def fact_id(number: int) -> FactId:
    return FactId(f"fact-00000000-0000-4000-8000-{number:012x}")


def told(
    number: int,
    value: str,
    since: int,
    ends: int | None = None,
    link: Link | None = None,
    instead_of: FactId | None = None,
) -> StatedFact:
    fact = Fact(
        fact_id(number), AGENT, "user", "lives in", value, f"lives in {value}", since, number, number, link=link
    )
    return StatedFact(fact, fact_id(1000 + number), ends, instead_of)


def grown(timeline: Sequence[Fact], new: StatedFact) -> list[Fact]:
    done = evolve(timeline, new)
    changed = {fact.id: fact for fact in done.changed}
    assert changed.keys() <= {fact.id for fact in timeline}
    return [*(changed.get(fact.id, fact) for fact in timeline), *done.added]


def history(*news: StatedFact) -> list[Fact]:
    timeline: list[Fact] = []
    for new in news:
        timeline = grown(timeline, new)
    return timeline


def at(timeline: Sequence[Fact], when: int) -> str | None:
    true = [fact.value for fact in timeline if fact.holds(when)]
    assert len(true) <= 1, (when, true)
    return true[0] if true else None


def test_a_new_value_ends_the_old_one_and_both_are_kept_and_linked():
    berlin, oslo = history(told(1, "Berlin", 10), told(2, "Oslo", 20))
    assert (berlin.valid_until, berlin.superseded_by, oslo.supersedes, oslo.link) == (20, oslo.id, berlin.id, "update")
    assert [at((berlin, oslo), when) for when in (9, 10, 19, 20, 99)] == [None, "Berlin", "Berlin", "Oslo", "Oslo"]


def test_what_was_never_so_is_linked_as_a_contradiction():
    assert history(told(1, "Berlin", 10), told(2, "Bern", 20, link=Link.contradiction))[1].link is Link.contradiction


def test_the_same_again_confirms_in_whatever_spelling():
    first = told(1, "New York", 10)
    again = told(2, "new-york", 20)
    again = StatedFact(replace(again.fact, sources=(MessageId("message-x"),), confidence=0.5), again.rest_id)
    [known] = history(first, again)
    assert (known.seen, known.seen_at, known.confidence, known.sources) == (2, 2, 1.0, ("message-x",))


def test_what_was_before_is_put_before_and_changes_nothing_of_now():
    timeline = history(told(1, "Oslo", 50), told(2, "Paris", 10, ends=20), told(3, "Rome", 30))
    assert [at(timeline, when) for when in (5, 15, 25, 35, 60)] == [None, "Paris", None, "Rome", "Oslo"]


def test_it_was_otherwise_for_a_while_and_then_as_before():
    timeline = history(told(1, "Berlin", 10), told(2, "Paris", 20, ends=30))
    assert [at(timeline, when) for when in (15, 25, 35)] == ["Berlin", "Paris", "Berlin"]
    assert len(timeline) == 3


def test_it_began_earlier_than_was_known():
    timeline = history(told(1, "Berlin", 10), told(2, "Oslo", 50), told(3, "Oslo", 30))
    assert [at(timeline, when) for when in (20, 29, 30, 60)] == ["Berlin", "Berlin", "Oslo", "Oslo"]


def test_it_is_over_and_nothing_came_after():
    [berlin] = history(told(1, "Berlin", 10), told(2, "Berlin", 20, ends=30))
    assert berlin.valid_until == 30


def test_what_was_said_to_be_wrong_was_never_true():
    timeline = history(told(1, "Berlin", 50), told(2, "Oslo", 10, instead_of=fact_id(1)), told(3, "Rome", 5, ends=8))
    assert [at(timeline, when) for when in (6, 9, 20, 60)] == ["Rome", None, "Oslo", "Oslo"]
    assert timeline[0].superseded_by == fact_id(2) and len(timeline) == 3


def test_a_fact_that_is_deleted_gives_its_place_back():
    berlin, oslo, rome = history(told(1, "Berlin", 10), told(2, "Oslo", 20), told(3, "Rome", 30))
    changed = {fact.id: fact for fact in after_deletion((berlin, oslo, rome), oslo)}
    left = [changed.get(fact.id, fact) for fact in (berlin, rome)]
    assert [at(left, when) for when in (15, 25, 35)] == ["Berlin", "Berlin", "Rome"]
    assert (left[0].superseded_by, left[1].supersedes) == (rome.id, berlin.id)


News = tuple[str, int, int | None, int | None]  # a value, since when, until when, and in the place of which
CITIES = st.sampled_from(["Berlin", "Oslo", "Rome"])
NEWS = st.lists(
    st.tuples(CITIES, st.integers(0, 30), st.none() | st.integers(0, 40), st.none() | st.integers(0, 9)), max_size=12
)


@given(NEWS)
def test_at_any_time_there_is_at_most_one_value_and_nothing_is_ever_deleted(
    news: list[News],
):
    timeline: list[Fact] = []
    for number, (value, since, ends, wrong) in enumerate(news):
        before = {fact.id: (fact.value, fact.statement) for fact in timeline}
        instead_of = timeline[wrong % len(timeline)].id if wrong is not None and timeline else None
        timeline = grown(timeline, told(number, value, since, ends, instead_of=instead_of))
        after = {fact.id: (fact.value, fact.statement) for fact in timeline}
        assert after.items() >= before.items()
        assert len(after) == len(timeline)
        for when in range(-1, 45):
            at(timeline, when)
        assert at(timeline, since) == value, "what was told last about a moment is what is known of it"
        _links_meet(timeline)


def _links_meet(timeline: Sequence[Fact]) -> None:
    known = {fact.id: fact for fact in timeline}
    for fact in timeline:
        assert fact.valid_until is None or fact.valid_until >= fact.valid_from
        if fact.superseded_by is not None and fact.valid_until != fact.valid_from:
            assert known[fact.superseded_by].valid_from == fact.valid_until


def test_names_are_compared_without_case_and_marks():
    assert key("  Lives-In ") == key("lives in") == key("ＬＩＶＥＳ in")
    assert len({key(one) for one in ("C", "C++", "C#", "-5", "5", "3.5", "35")}) == 7
    assert key("!!!") == "!!!"
