"""Archives as rows, and their use by agents.

An agent has at most one archive: the one it writes to and searches. It is created when the agent first stores
something, unless one was attached before. An archive that was created that way and that no other agent uses is deleted
with its agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound, StorageBusy
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId
from kelpie.core.memory.passages import Archive, ArchiveQuery
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.rows import paging
from kelpie.storage.tables import agent_archives, agents, archives
from kelpie.world.database import Tx

AUTOMATIC = "Created by the server when the agent first stored something."

_FIELDS = tuple(each.name for each in fields(Archive))
_CHANGEABLE = frozenset({"name", "description", "embedding"})

_ALL = sa.select(archives).where(archives.c.removed.is_(False))
_OURS = _ALL.where(archives.c.organization_id == sa.bindparam("of_organization"))
_ONE = _OURS.where(archives.c.id == sa.bindparam("of_archive"))
_MANY = _OURS.where(archives.c.id.in_(sa.bindparam("ids", expanding=True)))
_INSERT = sa.insert(archives)

require = row_ownership.owned(row_ownership.owner_of(archives).where(archives.c.removed.is_(False)), "Archive")


def from_row(row: sa.Row[Any]) -> Archive:
    """An archive from all of its columns."""
    return Archive(
        id=ArchiveId(row.id),
        name=row.name,
        created_at=row.created_at,
        updated_at=row.updated_at,
        description=row.description,
        embedding=row.embedding,
        embedding_chunk_size=row.embedding_chunk_size,
        metadata=row.metadata,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def insert(tx: Tx, archive: Archive) -> None:
    """Writes a new archive, which no agent uses yet."""
    tx.execute(_INSERT, {"removed": False, **{name: getattr(archive, name) for name in _FIELDS}})


def get(tx: Tx, organization: OrganizationId, archive_id: ArchiveId) -> Archive:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_organization": organization, "of_archive": archive_id}).first()
    if row is None:
        raise NotFound("Archive", archive_id)
    return from_row(row)


def get_many(tx: Tx, organization: OrganizationId, ids: Sequence[ArchiveId]) -> dict[ArchiveId, Archive]:
    """The archives with these ids; those that do not exist are left out."""
    if not ids:
        return {}
    rows = tx.execute(_MANY, {"of_organization": organization, "ids": list(ids)})
    return {archive.id: archive for archive in map(from_row, rows)}


@lru_cache(maxsize=8)
def _update(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=archives.c[name].type) for name in names}
    return sa.update(archives).where(archives.c.id == sa.bindparam("of_archive")).values(new)


def update(
    tx: Tx, organization: OrganizationId, archive_id: ArchiveId, changes: Mapping[str, Any], now: Micros, by: str
) -> Archive:
    """Changes the name or the description. Raises NotFound."""
    require(tx, organization, archive_id)
    columns = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    if columns:
        columns |= {"updated_at": now, "last_updated_by_id": by}
        bound = {f"new_{name}": value for name, value in columns.items()}
        tx.execute(_update(tuple(sorted(columns))), bound | {"of_archive": archive_id})
    return get(tx, organization, archive_id)


_NAMED = archives.c.name == sa.bindparam("of_name")
_USED = archives.c.id.in_(
    sa.select(agent_archives.c.archive_id).where(agent_archives.c.agent_id == sa.bindparam("of_agent"))
)


@lru_cache(maxsize=4)
def _filtered(named: bool, used: bool) -> sa.Select[Any]:
    return _OURS.where(*(clause for clause, wanted in ((_NAMED, named), (_USED, used)) if wanted))


def select(tx: Tx, organization: OrganizationId, query: ArchiveQuery) -> list[Archive]:
    """The archives that match, on the requested page. Raises NotFound for a cursor that is not of this organisation."""
    for cursor in (query.page.after, query.page.before):
        if cursor is not None:
            require(tx, organization, cursor)
    statement = _filtered(query.name is not None, query.agent_id is not None)
    bound = {"of_organization": organization, "of_name": query.name, "of_agent": query.agent_id}
    rows = paging.page(tx, statement, archives, query.page, bound, within={"organization_id": organization})
    return [from_row(row) for row in rows]


# --- use by agents ---------------------------------------------------------------------------------------------------

_ARCHIVE_OF = sa.select(agent_archives.c.archive_id).where(agent_archives.c.agent_id == sa.bindparam("of_agent"))
_OUR_ARCHIVE_OF = _ARCHIVE_OF.join(archives, archives.c.id == agent_archives.c.archive_id).where(
    archives.c.organization_id == sa.bindparam("of_organization")
)
_ATTACH = sa.insert(agent_archives)
_DETACH = sa.delete(agent_archives).where(
    agent_archives.c.agent_id == sa.bindparam("of_agent"), agent_archives.c.archive_id == sa.bindparam("of_archive")
)
_AGENT = sa.select(
    agents.c.name,
    agents.c.organization_id,
    agents.c.embedding,
    agents.c.embedding_chunk_size,
    agents.c.created_by_id,
).where(agents.c.id == sa.bindparam("of_agent"))
_USERS = (
    sa.select(agents.c.id)
    .join(agent_archives, agent_archives.c.agent_id == agents.c.id)
    .where(agent_archives.c.archive_id == sa.bindparam("of_archive"))
)


def archive_of(tx: Tx, agent_id: AgentId, organization: OrganizationId | None = None) -> ArchiveId | None:
    """The agent's archive, if it has one, and if an organisation is named, one of that organisation."""
    bound: dict[str, Any] = {"of_agent": agent_id, "of_organization": organization}
    found = tx.execute(_ARCHIVE_OF if organization is None else _OUR_ARCHIVE_OF, bound).scalar()
    return None if found is None else ArchiveId(found)


def ensure(tx: Tx, agent_id: AgentId, new_id: ArchiveId, now: Micros) -> ArchiveId:
    """The agent's archive; created with `new_id` when it has none. Raises NotFound for an unknown agent.

    Raises StorageBusy when another transaction created one at the same moment: trying again finds it.
    """
    there = archive_of(tx, agent_id)
    if there is not None:
        return there
    agent = tx.execute(_AGENT, {"of_agent": agent_id}).first()
    if agent is None:
        raise NotFound("Agent", agent_id)
    made = Archive(
        id=new_id,
        name=f"{agent.name}'s archive",
        created_at=now,
        updated_at=now,
        description=AUTOMATIC,
        embedding=agent.embedding,
        embedding_chunk_size=agent.embedding_chunk_size,
        organization_id=OrganizationId(agent.organization_id),
        created_by_id=agent.created_by_id,
        last_updated_by_id=agent.created_by_id,
    )
    try:
        insert(tx, made)
        tx.execute(_ATTACH, {"agent_id": agent_id, "archive_id": new_id, "is_owner": True})
    except IntegrityError as error:
        raise StorageBusy(f"Another request is creating the archive of {agent_id}. Try again.") from error
    return new_id


def attach(tx: Tx, agent_id: AgentId, archive_id: ArchiveId) -> None:
    """Lets the agent use the archive; does nothing if it does already. Raises Conflict when it has another one."""
    there = archive_of(tx, agent_id)
    if there == archive_id:
        return
    if there is not None:
        raise _has_another(agent_id, there)
    try:
        tx.execute(_ATTACH, {"agent_id": agent_id, "archive_id": archive_id, "is_owner": False})
    except IntegrityError as error:
        raise _has_another(agent_id, "another archive") from error


def _has_another(agent_id: AgentId, archive: str) -> Conflict:
    return Conflict(f"{agent_id} already has {archive}, and an agent can have only one archive; detach that one first")


def detach(tx: Tx, agent_id: AgentId, archive_id: ArchiveId) -> None:
    """Takes the archive from the agent, if it uses it; the archive stays."""
    tx.execute(_DETACH, {"of_agent": agent_id, "of_archive": archive_id})


def agents_page(tx: Tx, organization: OrganizationId, archive_id: ArchiveId, page: Page) -> list[AgentId]:
    """The agents that use the archive, in the requested order and on the requested page."""
    rows = paging.page(tx, _USERS, agents, page, {"of_archive": archive_id}, within={"organization_id": organization})
    return [AgentId(row[0]) for row in rows]
