"""Facts as rows with their text index and vectors. Each belongs to one agent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, exists, func, insert, literal, or_, select, update

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.memory.fact_timeline import StatedFact, after_deletion, evolve
from kelpie.core.memory.facts import Fact, FactQuery, FactSearch, FoundFact, Link, key
from kelpie.core.search_hits import Hit
from kelpie.core.time import Micros
from kelpie.search import items
from kelpie.search.item_lookup import ITEM_ID, Only, listed
from kelpie.search.items import Item
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.memory import entities
from kelpie.storage.tables import fact_sources, facts
from kelpie.world.database import Tx

_CHUNK = 500
_F, _S = facts.c, fact_sources.c
_OWN = _F.agent_id == bindparam("of_agent")
_PLAIN = tuple(name for name in facts.c.keys() if not name.endswith("_key"))  # noqa: SIM118
_SOURCES = select(fact_sources).where(_S.fact_id.in_(bindparam("ids", expanding=True))).order_by(_S.message_id)
_INSERT, _INSERT_SOURCE = insert(facts), insert(fact_sources)
_CHANGE = (
    update(facts)
    .where(_F.id == bindparam("of_fact"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in (
                "valid_from", "valid_until", "seen_at", "seen", "confidence", "supersedes", "superseded_by", "link",
            )
        }
    )
)  # fmt: skip
_DROP_SOURCES = delete(fact_sources).where(_S.fact_id == bindparam("of_fact"))


def add(tx: Tx, fact: Fact, vectors: Sequence[Vector] = ()) -> None:
    """Writes a fact with its sources, and indexes it."""
    tx.execute(_INSERT, _to_row(fact))
    _add_sources(tx, fact)
    items.put_many(tx, "fact", fact.agent_id, [Item(fact.id, fact.statement, tuple(vectors))])


def _add_sources(tx: Tx, fact: Fact) -> None:
    if fact.sources:
        tx.execute(_INSERT_SOURCE, [{"fact_id": fact.id, "message_id": one} for one in dict.fromkeys(fact.sources)])


def _to_row(fact: Fact) -> dict[str, Any]:
    row = {name: getattr(fact, name) for name in facts.c.keys()}  # noqa: SIM118
    return row | {"link": None if fact.link is None else fact.link.value}


def _change(tx: Tx, fact: Fact) -> None:
    row = _to_row(fact)
    tx.execute(_CHANGE, {"of_fact": fact.id, **{name: row[name[4:]] for name in _CHANGED}})
    tx.execute(_DROP_SOURCES, {"of_fact": fact.id})
    _add_sources(tx, fact)


_CHANGED = tuple(name for name in _CHANGE.compile().params if name.startswith("new_"))


def _read(tx: Tx, rows: Sequence[Row[Any]]) -> list[Fact]:
    sources: dict[str, list[MessageId]] = {}
    if rows:
        for row in tx.execute(_SOURCES, {"ids": [row.id for row in rows]}):
            sources.setdefault(row.fact_id, []).append(MessageId(row.message_id))
    return [_from_row(row, sources.get(row.id, ())) for row in rows]


def _from_row(row: Row[Any], sources: Sequence[MessageId]) -> Fact:
    values = {name: getattr(row, name) for name in _PLAIN}
    values |= {name: FactId(values[name]) for name in ("id", "supersedes", "superseded_by") if values[name]}
    values |= {"agent_id": AgentId(values["agent_id"]), "link": Link(values["link"]) if values["link"] else None}
    return Fact(**values, sources=tuple(sources))


# --- learning -------------------------------------------------------------------------------------------------------

_TIMELINE = select(facts).where(
    _OWN, _F.subject_key == bindparam("the_subject"), _F.attribute_key == bindparam("the_attribute")
)
_COUNT = select(func.count()).select_from(facts).where(_OWN)


def learn(tx: Tx, told: StatedFact, vectors: Sequence[Vector] = ()) -> None:
    """Adds a stated fact to its timeline: a new fact, or a confirmed one."""
    fact = told.fact
    known = _of_attribute(tx, fact)
    if known:  # the first stated fact decides whether there can be several values at once
        fact = replace(fact, exclusive=known[0].exclusive)
    timeline = known if fact.exclusive else [one for one in known if one.value_key == fact.value_key]
    done = evolve(timeline, replace(told, fact=fact))
    for changed in done.changed:
        _change(tx, changed)
    for new in done.added:
        add(tx, new, vectors if new.id == fact.id else ())


def _of_attribute(tx: Tx, fact: Fact) -> list[Fact]:
    bound = {"of_agent": fact.agent_id, "the_subject": fact.subject_key, "the_attribute": fact.attribute_key}
    return _read(tx, tx.execute(_TIMELINE, bound).all())


def count(tx: Tx, agent_id: AgentId) -> int:
    return int(tx.execute(_COUNT, {"of_agent": agent_id}).scalar_one())


_REMOVE = delete(facts).where(_F.id == bindparam("of_fact"))


def remove(tx: Tx, agent_id: AgentId, fact_id: FactId) -> None:
    """Deletes a fact; the one it had replaced is true again. Raises NotFound."""
    gone = get(tx, agent_id, fact_id)
    for changed in after_deletion(_of_attribute(tx, gone), gone):
        _change(tx, changed)
    tx.execute(_REMOVE, {"of_fact": fact_id})
    items.remove_many(tx, "fact", (fact_id,))


_ERASE = delete(facts).where(_F.id.in_(bindparam("ids", expanding=True)))


def erase(tx: Tx, ids: Sequence[FactId]) -> None:
    """Deletes facts as if they had never been learnt, without looking at their links."""
    for start in range(0, len(ids), _CHUNK):
        piece = list(ids[start : start + _CHUNK])
        items.remove_many(tx, "fact", piece)
        tx.execute(_ERASE, {"ids": piece})


# --- reading --------------------------------------------------------------------------------------------------------

_BY_IDS = select(facts).where(_OWN, _F.id.in_(bindparam("ids", expanding=True)))
_TEXTS = select(_F.id, _F.statement).where(_F.id.in_(bindparam("ids", expanding=True)))
_FILTERS: dict[str, ColumnElement[bool]] = {
    "at": (_F.valid_from <= bindparam("at")) & or_(_F.valid_until.is_(None), _F.valid_until > bindparam("at")),
    "subjects": _F.subject_key.in_(bindparam("subjects", expanding=True)),
    "attribute": _F.attribute_key == bindparam("attribute"),
}


def get(tx: Tx, agent_id: AgentId, fact_id: FactId) -> Fact:
    """Raises NotFound."""
    found = get_many(tx, agent_id, (fact_id,))
    if not found:
        raise NotFound("Fact", fact_id)
    return found[0]


def get_many(tx: Tx, agent_id: AgentId, ids: Sequence[str]) -> list[Fact]:
    """The agent's facts with these ids, in that order; others are left out."""
    rows = {row.id: row for row in tx.execute(_BY_IDS, {"of_agent": agent_id, "ids": list(ids)})}
    return _read(tx, [rows[one] for one in ids if one in rows])


_EVERY = select(facts).where(_OWN).order_by(_F.recorded_at, _F.id)


def every(tx: Tx, agent_id: AgentId) -> list[Fact]:
    """All facts of the agent, oldest first."""
    rows = tx.execute(_EVERY, {"of_agent": agent_id}).all()
    return [fact for start in range(0, len(rows), _CHUNK) for fact in _read(tx, rows[start : start + _CHUNK])]


def texts(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """The texts of facts, for their vectors."""
    return {row.id: row.statement for row in tx.execute(_TEXTS, {"ids": list(ids)})}


@lru_cache(maxsize=16)
def _listing(names: tuple[str, ...]) -> Select[Any]:
    found = select(facts).where(_OWN, *(_FILTERS[name] for name in names))
    return found.order_by(_F.recorded_at.desc(), _F.id).limit(bindparam("most")).offset(bindparam("skipped"))


def select_facts(tx: Tx, agent_id: AgentId, query: FactQuery) -> list[Fact]:
    """The agent's facts, the newest first."""
    given: dict[str, Any] = {
        "at": query.at,
        "subjects": None if query.entity is None else sorted(entities.names(tx, agent_id, query.entity)),
        "attribute": None if query.attribute is None else key(query.attribute),
    }
    used = {name: value for name, value in given.items() if value is not None}
    bound = {"of_agent": agent_id, "most": query.limit, "skipped": query.offset, **used}
    return _read(tx, tx.execute(_listing(tuple(used)), bound).all())


# --- searching ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _condition(names: tuple[str, ...]) -> ColumnElement[bool]:
    return exists(select(literal(1)).where(_F.id == ITEM_ID, _OWN, *(_FILTERS[name] for name in names)))


def _only(agent_id: AgentId, wanted: FactSearch) -> Only:
    if wanted.at is None:
        return Only(_condition(()), {"of_agent": agent_id})
    return Only(_condition(("at",)), {"of_agent": agent_id, "at": wanted.at})


def nearest(
    tx: Tx,
    finder: NearestItems,
    agent_id: AgentId,
    wanted: FactSearch,
    scopes: Mapping[str, str],
    meanings: Mapping[str, Vector],
) -> NearItems:
    """The agent's facts nearest in meaning; `scopes` names the model of its vectors."""
    sought = replace(_sought(wanted), meanings=meanings)
    return items.nearest(tx, finder, "fact", scopes, sought, _only(agent_id, wanted))


_TIMES = select(_F.id, _F.valid_from, _F.valid_until).where(_F.id.in_(listed("ids")))
_STILL = 2**62


def _times(tx: Tx, ids: Sequence[str]) -> dict[str, tuple[Micros, Micros]]:
    """From when to when facts are true."""
    rows = tx.execute(_TIMES, {"ids": json.dumps(ids)})
    return {row.id: (row.valid_from, _STILL if row.valid_until is None else row.valid_until) for row in rows}


def _sought(wanted: FactSearch) -> ItemQuery:
    return ItemQuery(wanted.text, wanted.limit, wanted.mode, mentions=wanted.mentions, times=_times)


def search(
    tx: Tx, agent_id: AgentId, wanted: FactSearch, now: Micros, near: NearItems = NOTHING_NEAR
) -> list[FoundFact]:
    """The best facts by words and meaning. A fact that was replaced never comes before its successor: that one comes
    first, even if it did not match. With a time, only facts that were true then."""
    found_items = items.find(tx, "fact", agent_id, _sought(wanted), _only(agent_id, wanted), near)
    hits = {hit.id: hit for hit in found_items}
    found = {fact.id: fact for fact in get_many(tx, agent_id, list(hits))}
    order = list(found) if wanted.at is not None else _newest_first(tx, agent_id, found)
    when = now if wanted.at is None else wanted.at
    return [_shown(found[one], when, hits.get(one)) for one in order][: wanted.limit]


def _shown(fact: Fact, when: Micros, hit: Hit | None) -> FoundFact:
    return FoundFact(fact, fact.holds(when), hit)


_STEPS_MAX = 32  # limit on following a fact's successors


def _newest_first(tx: Tx, agent_id: AgentId, found: dict[FactId, Fact]) -> list[FactId]:
    """The order of the found facts; successors of found facts are added to it."""
    order: dict[FactId, None] = {}
    for fact in list(found.values()):
        chain = [fact]
        while (after := chain[-1].superseded_by) is not None and len(chain) < _STEPS_MAX:
            if after not in found:
                found |= {one.id: one for one in get_many(tx, agent_id, (after,))}
            if after not in found:
                break
            chain.append(found[after])
        order |= dict.fromkeys(one.id for one in (chain[-1], fact) if one.id not in order)
    return list(order)
