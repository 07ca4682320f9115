"""Authors in a checkpoint: rows name the users and agents that made them, and those must not be another organization's.

A document can be written by hand. An author of another organization is replaced by the user who restores.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId, UserId
from kelpie.storage.tables import agents, users
from kelpie.world.database import Tx

_CHUNK = 500
_NAMES = ("created_by_id", "last_updated_by_id")
_FOREIGN = [
    sa.select(table.c.id).where(
        table.c.id.in_(sa.bindparam("ids", expanding=True)), table.c.organization_id != sa.bindparam("ours")
    )
    for table in (users, agents)
]


def replace_foreign(tx: Tx, memory: Mapping[str, Any], organization: OrganizationId, user: UserId) -> None:
    """Replaces the authors of another organization in the rows of a document, which are not checked yet."""
    rows = [each for each in _rows(memory) if any(isinstance(each.get(name), str) for name in _NAMES)]
    given = sorted({each[name] for each in rows for name in _NAMES if isinstance(each.get(name), str)})
    foreign: set[str] = set()
    for start in range(0, len(given), _CHUNK):
        bound = {"ids": given[start : start + _CHUNK], "ours": organization}
        for statement in _FOREIGN:
            foreign.update(tx.execute(statement, bound).scalars())
    for each in rows if foreign else ():
        for name in _NAMES:
            if isinstance(each.get(name), str) and each[name] in foreign:
                each[name] = user


def _rows(memory: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows that have authors: blocks, the copies of conversations, the archive and its passages."""
    yield from _objects(memory.get("blocks"))
    for conversation in _objects(memory.get("conversations")):
        copies = conversation.get("blocks")
        yield from _objects(list(cast("dict[str, Any]", copies).values()) if isinstance(copies, dict) else None)
    for archive in _objects([memory.get("archive")]):
        yield from _objects([archive.get("archive")])
        yield from _objects(archive.get("passages"))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return (cast("dict[str, Any]", each) for each in found if isinstance(each, dict))
