"""Facts in a checkpoint: the facts of an agent, their entities, and the progress of extraction.

A fact that still exists unchanged is not touched and keeps its vectors. Whether facts are extracted is a setting of the
agent and not memory; the progress of extraction is memory, because nothing may be learnt twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.ids import AgentId, FactId, MessageId
from kelpie.core.memory.facts import Entity, Fact, Link, key
from kelpie.storage.checkpoints.pieces import Piece, each_part, one, parts
from kelpie.storage.checkpoints.rows import columns_of, distinct, identifier, members, row, section, texts
from kelpie.storage.conversations import fact_progress
from kelpie.storage.memory import entities, facts
from kelpie.storage.tables import entities as entity_table
from kelpie.storage.tables import facts as table
from kelpie.world.database import Tx

REMOVED, WRITTEN, LOOKED_UP = 100, 30, 500  # facts of one piece, or of one query

_OF_ANOTHER = "a fact of the checkpoint now belongs to another agent; nothing was restored"
_ELSEWHERE = sa.select(table.c.id).where(
    table.c.id.in_(sa.bindparam("ids", expanding=True)), table.c.agent_id != sa.bindparam("of_agent")
)
_FACT = columns_of(table, "agent_id", "subject_key", "attribute_key", "value_key")
_ENTITY = columns_of(entity_table, "agent_id", "name_key", "aliases")


@dataclass(frozen=True, slots=True)
class FactsSection:
    """The facts of a document, ready to be written. `through` is None when nothing was extracted then."""

    facts: tuple[Fact, ...]
    entities: tuple[Entity, ...]
    through: int | None


def take(tx: Tx, agent_id: AgentId) -> dict[str, Any]:
    """The sections of the document."""
    state = fact_progress.get(tx, agent_id)
    learnt = [
        {name: value for name, value in asdict(fact).items() if name != "agent_id"}
        for fact in facts.every(tx, agent_id)
    ]
    return {
        "facts": learnt,
        "entities": [asdict(entity) for entity in entities.of_agent(tx, agent_id)],
        "facts_through": None if state is None else state.through,
    }


def read(memory: Mapping[str, Any], agent_id: AgentId) -> FactsSection:
    """Raises InvalidInput."""
    found = [_fact(data, f"memory.facts[{at}]", agent_id) for at, data in enumerate(section(memory, "facts"))]
    distinct(({"key": fact.id} for fact in found), lambda each: each["key"], "memory.facts")
    things = [_entity(data, f"memory.entities[{at}]") for at, data in enumerate(section(memory, "entities"))]
    distinct(({"key": key(entity.name)} for entity in things), lambda each: each["key"], "memory.entities")
    through = memory.get("facts_through")
    if through is not None and (type(through) is not int or through < 0):
        raise InvalidInput("memory.facts_through", "must be a whole number or null")
    return FactsSection(tuple(found), tuple(things), through)


def _fact(data: Any, where: str, agent_id: AgentId) -> Fact:
    given = members(data, where, (*_FACT, "sources"))
    values = row(table, {name: given[name] for name in _FACT}, where, _FACT)
    for name in ("id", "supersedes", "superseded_by"):
        if values[name] is not None:
            values[name] = FactId(identifier(FactId, values[name], f"{where}.{name}"))
    if values["link"] is not None:
        if values["link"] not in tuple(Link):
            raise InvalidInput(f"{where}.link", f"must be one of {', '.join(Link)} or null")
        values["link"] = Link(values["link"])
    said = texts(given["sources"], f"{where}.sources")
    sources = [MessageId(identifier(MessageId, one, f"{where}.sources")) for one in said]
    return Fact(**values, agent_id=agent_id, sources=tuple(sources))


def _entity(data: Any, where: str) -> Entity:
    given = members(data, where, (*_ENTITY, "aliases"))
    values = row(entity_table, {name: given[name] for name in _ENTITY}, where, _ENTITY)
    return Entity(**values, aliases=tuple(texts(given["aliases"], f"{where}.aliases")))


def pieces(tx: Tx, agent_id: AgentId, wanted: FactsSection) -> list[Piece]:
    """The writes that make these the agent's facts. Raises Conflict."""
    there = {fact.id: fact for fact in facts.every(tx, agent_id)}
    meant = {fact.id: fact for fact in wanted.facts}
    new = [fact for fact in wanted.facts if there.get(fact.id) != fact]
    for ids in parts([fact.id for fact in new], LOOKED_UP):
        if tx.execute(_ELSEWHERE, {"ids": ids, "of_agent": agent_id}).first() is not None:
            raise Conflict(_OF_ANOTHER)
    gone = [fact_id for fact_id, fact in there.items() if meant.get(fact_id) != fact]
    known = [key(entity.name) for entity in entities.of_agent(tx, agent_id)]
    return [
        *each_part(gone, REMOVED, facts.erase),
        *each_part(new, WRITTEN, _add, lambda fact: len(fact.statement)),
        *each_part(known, REMOVED, lambda tx, names: entities.remove(tx, agent_id, names)),
        *each_part(wanted.entities, WRITTEN, lambda tx, some: [entities.add(tx, agent_id, each) for each in some]),
        one(lambda tx: fact_progress.set_through(tx, agent_id, wanted.through)),
    ]


def _add(tx: Tx, some: Sequence[Fact]) -> None:
    try:
        for fact in some:
            facts.add(tx, fact)
    except IntegrityError as error:
        raise Conflict(_OF_ANOTHER) from error
