"""Entities that facts are about: people, places and things, each under one name, with its other names."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from kelpie.core.ids import AgentId
from kelpie.core.memory.facts import ENTITIES_MAX, Entity, key
from kelpie.storage.tables import entities
from kelpie.world.database import Tx

ALIASES_MAX = 20

_E = entities.c
_OWN = _E.agent_id == bindparam("of_agent")
_ALL = select(entities).where(_OWN).order_by(_E.seen_at.desc(), _E.name_key)
_PAGE = _ALL.limit(bindparam("most")).offset(bindparam("skipped"))
_INSERT = insert(entities)
_REMOVE = delete(entities).where(_OWN, _E.name_key.in_(bindparam("names", expanding=True)))
_CHANGE = (
    update(entities)
    .where(_OWN, _E.name_key == bindparam("the_name"))
    .values(kind=bindparam("new_kind"), aliases=bindparam("new_aliases"), seen_at=bindparam("new_seen_at"))
)


def of_agent(tx: Tx, agent_id: AgentId) -> list[Entity]:
    """The entities of an agent's facts, the last mentioned first."""
    return [_from_row(row) for row in tx.execute(_ALL, {"of_agent": agent_id})]


def page(tx: Tx, agent_id: AgentId, limit: int, offset: int) -> list[Entity]:
    bound = {"of_agent": agent_id, "most": limit, "skipped": offset}
    return [_from_row(row) for row in tx.execute(_PAGE, bound)]


def names(tx: Tx, agent_id: AgentId, name: str) -> frozenset[str]:
    """The names of the same entity as this one, in the form in which they are compared."""
    wanted = key(name)
    same = (entity.keys for entity in of_agent(tx, agent_id) if wanted in entity.keys)
    return frozenset({wanted}).union(*same)


def record_mention(tx: Tx, agent_id: AgentId, known: Sequence[Entity], new: Entity) -> Entity:
    """Records that an entity was mentioned; one with a known name is the same entity. Returns the stored entity."""
    same = next((entity for entity in known if entity.keys & new.keys), None)
    if same is None:
        if len(known) < ENTITIES_MAX:
            add(tx, agent_id, new)
        return new
    others = {key(each): each for each in (*reversed(new.aliases), new.name, *reversed(same.aliases))}
    others.pop(key(same.name), None)
    taken = frozenset[str]().union(*(entity.keys for entity in known if entity is not same))
    aliases = tuple(each for each in reversed(others.values()) if key(each) not in taken)[:ALIASES_MAX]
    kind = new.kind or same.kind
    tx.execute(
        _CHANGE,
        {
            "of_agent": agent_id,
            "the_name": key(same.name),
            "new_kind": kind,
            "new_aliases": list(aliases),
            "new_seen_at": max(same.seen_at, new.seen_at),
        },
    )
    return Entity(same.name, kind, same.first_seen_at, max(same.seen_at, new.seen_at), aliases)


def add(tx: Tx, agent_id: AgentId, entity: Entity) -> None:
    tx.execute(
        _INSERT,
        {
            "agent_id": agent_id,
            "name_key": key(entity.name),
            "name": entity.name,
            "kind": entity.kind,
            "aliases": list(entity.aliases[:ALIASES_MAX]),
            "first_seen_at": entity.first_seen_at,
            "seen_at": entity.seen_at,
        },
    )


def remove(tx: Tx, agent_id: AgentId, names: Sequence[str]) -> None:
    """Deletes the entities with these names, as they are compared."""
    tx.execute(_REMOVE, {"of_agent": agent_id, "names": list(names)})


def _from_row(row: Row[Any]) -> Entity:
    return Entity(row.name, row.kind, row.first_seen_at, row.seen_at, tuple(row.aliases))
