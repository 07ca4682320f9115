"""Timelines of facts: pure rules for facts that replace each other over time. They never delete or overwrite a fact.

A timeline holds all facts about one attribute of one subject (about one value, where many can be true at once). At any
moment at most one fact of a timeline is true. A new statement confirms a fact, or replaces it from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kelpie.core.ids import FactId
from kelpie.core.memory.facts import Fact, Link
from kelpie.core.time import Micros


@dataclass(frozen=True, slots=True)
class StatedFact:
    """A fact as it was stated. `ends` is when it stopped being true, if stated; `instead_of` is the fact it was stated
    to replace. `rest_id` is the id for the remainder of a longer fact that this one interrupts."""

    fact: Fact
    rest_id: FactId
    ends: Micros | None = None
    instead_of: FactId | None = None


@dataclass(frozen=True, slots=True)
class TimelineChange:
    """Changes to a timeline: facts that changed, and facts that are new."""

    changed: tuple[Fact, ...] = ()
    added: tuple[Fact, ...] = ()


def evolve(timeline: Sequence[Fact], told: StatedFact) -> TimelineChange:
    """The changes that a stated fact makes to a timeline. The facts of the timeline must not overlap, and still do not
    after it."""
    lasting = [fact for fact in timeline if fact.valid_until is None or fact.valid_until > fact.valid_from]
    new, at = told.fact, told.fact.valid_from
    ends = told.ends if told.ends is not None and told.ends > at else None
    wrong = [fact for fact in lasting if fact.id == told.instead_of and fact.valid_from > at and ends is None]
    if wrong and wrong[0].value_key != new.value_key:  # it was not so even then: there is no time left for it
        done = evolve([fact for fact in lasting if fact not in wrong], told)
        return replace(done, changed=(*done.changed, _never(wrong[0], new)))
    before = max((fact for fact in lasting if fact.valid_from <= at), key=_begin, default=None)
    after = min((fact for fact in lasting if fact.valid_from > at), key=_begin, default=None)
    covering = before if before is not None and before.holds(at) else None
    if covering is not None and covering.value_key == new.value_key:
        return TimelineChange(changed=(_ended(_confirmed(covering, new), ends),))
    if after is not None and after.value_key == new.value_key and (ends is None or ends >= after.valid_from):
        return _begun_earlier(covering, after, new)
    return _put_between(covering, after, told, ends)


def _begin(fact: Fact) -> Micros:
    return fact.valid_from


def _never(wrong: Fact, new: Fact) -> Fact:
    return replace(wrong, valid_until=wrong.valid_from, superseded_by=new.id)


def _confirmed(known: Fact, new: Fact) -> Fact:
    return replace(
        known,
        seen=known.seen + 1,
        seen_at=max(known.seen_at, new.seen_at),
        confidence=max(known.confidence, new.confidence),
        sources=tuple(dict.fromkeys((*known.sources, *new.sources))),
    )


def _ended(fact: Fact, ends: Micros | None) -> Fact:
    """Ends a fact that was stated to be over, unless another fact replaced it even earlier."""
    if ends is None or (fact.valid_until is not None and fact.valid_until <= ends):
        return fact
    return fact if fact.superseded_by is not None else replace(fact, valid_until=ends)


def _begun_earlier(covering: Fact | None, after: Fact, new: Fact) -> TimelineChange:
    """Moves the start of a known fact back to an earlier time."""
    moved = replace(_confirmed(after, new), valid_from=new.valid_from)
    if covering is None:
        return TimelineChange(changed=(moved,))
    closed = replace(covering, valid_until=new.valid_from, superseded_by=moved.id)
    return TimelineChange(changed=(closed, replace(moved, supersedes=covering.id, link=moved.link or Link.update)))


def _put_between(covering: Fact | None, after: Fact | None, told: StatedFact, ends: Micros | None) -> TimelineChange:
    new, changed, added = told.fact, list[Fact](), list[Fact]()
    meets = after is not None and (ends is None or ends >= after.valid_from)
    new = replace(new, valid_until=after.valid_from if after is not None and meets else ends)
    if covering is not None:
        new = replace(new, supersedes=covering.id, link=new.link or Link.update)
        changed.append(replace(covering, valid_until=new.valid_from, superseded_by=new.id))
    else:
        new = replace(new, link=None)
    if covering is not None and ends is not None and not meets and covering.holds(ends):
        # The new fact interrupts an older one, which holds again after it.
        rest = replace(covering, id=told.rest_id, valid_from=ends, supersedes=new.id, link=Link.update)
        new = replace(new, superseded_by=rest.id)
        added.append(rest)
        if after is not None and after.supersedes == covering.id:
            changed.append(replace(after, supersedes=rest.id))
    elif after is not None and meets:
        new = replace(new, superseded_by=after.id)
        changed.append(replace(after, supersedes=new.id, link=after.link or Link.update))
    return TimelineChange(tuple(changed), (new, *added))


def after_deletion(timeline: Sequence[Fact], gone: Fact) -> tuple[Fact, ...]:
    """The facts that change when a client deletes one: the fact it had replaced is extended over its time."""
    found = {fact.id: fact for fact in timeline}
    before, after = found.get(gone.supersedes or gone.id), found.get(gone.superseded_by or gone.id)
    changed: list[Fact] = []
    if before is not None and before.id != gone.id and before.superseded_by == gone.id:
        changed.append(replace(before, valid_until=gone.valid_until, superseded_by=gone.superseded_by))
    if after is not None and after.id != gone.id and after.supersedes == gone.id:
        changed.append(replace(after, supersedes=gone.supersedes))
    return tuple(changed)
