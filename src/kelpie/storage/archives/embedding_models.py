"""Selection of embedding models: an archive's or folder's own choice, an agent's, or the server's.

`search.vector_rows` decides which model a scope is searched by while its vectors change from one model to another.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, ArchiveId, OrganizationId
from kelpie.search import vector_rows
from kelpie.search.tables import search_scopes, search_sketches
from kelpie.search.text.fulltext import Kind
from kelpie.storage.tables import agent_archives, agents, archives, folders
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

_S = search_scopes.c
_OWNING = {"passage": archives, "file_passage": folders, "message": agents, "fact": agents}  # tables of scopes, by kind
_OWNERS_OF = {
    kind: sa.select(table.c.id, table.c.organization_id).where(table.c.id.in_(sa.bindparam("ids", expanding=True)))
    for kind, table in _OWNING.items()
}
_DEFAULT = sa.bindparam("default_model", type_=sa.Text)
_SELECTED_FOR = {
    kind: sa.select(table.c.id, sa.func.coalesce(table.c.embedding, _DEFAULT)).where(
        table.c.id.in_(sa.bindparam("ids", expanding=True))
    )
    for kind, table in _OWNING.items()
}
_SCOPE_OF = (_S.kind == "passage") & (_S.scope == archives.c.id)
_OURS = sa.select(archives.c.id, _S.model).where(
    archives.c.organization_id == sa.bindparam("of_organization"), archives.c.removed.is_(False)
)
_OF_ORGANIZATION = _OURS.join(search_scopes, _SCOPE_OF)
_OF_ARCHIVE = Prepared(_OURS.outerjoin(search_scopes, _SCOPE_OF).where(archives.c.id == sa.bindparam("of_archive")))
_OF_AGENT = (
    sa.select(
        archives.c.id,
        sa.case((archives.c.id.is_(None), agents.c.embedding), else_=archives.c.embedding),
    )
    .select_from(agents)
    .outerjoin(agent_archives, agent_archives.c.agent_id == agents.c.id)
    .outerjoin(archives, archives.c.id == agent_archives.c.archive_id)
    .where(agents.c.id == sa.bindparam("of_agent"))
)
_CHANGING_TOOLS = Prepared(
    sa.select(_S.scope, sa.func.coalesce(_DEFAULT, _S.model).label("model"))
    .where(_S.kind == "tool", _S.mixed | (_S.model != _DEFAULT))
    .limit(sa.bindparam("most"))
)
_CHANGING_OF = {
    kind: Prepared(
        sa.select(_S.scope, sa.func.coalesce(table.c.embedding, _DEFAULT, _S.model).label("model"))
        .join(table, table.c.id == _S.scope)
        .where(_S.kind == kind)
        .where(_S.mixed | (_S.model != sa.func.coalesce(table.c.embedding, _DEFAULT)))
        .limit(sa.bindparam("most"))
    )
    for kind, table in _OWNING.items()
}


_VECTOR_BYTES_PER_SKETCH_BYTE = 32  # a sketch has a bit where the vector has a number of four bytes
_SKETCHED = (
    sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(search_sketches.c.sketch)), 0))
    .join(archives, archives.c.id == search_sketches.c.scope)
    .where(search_sketches.c.kind == "passage", archives.c.organization_id == sa.bindparam("of_organization"))
)


def vector_bytes(tx: Tx, organization: OrganizationId) -> int:
    """The number of bytes of all vectors of passages."""
    return _VECTOR_BYTES_PER_SKETCH_BYTE * int(tx.execute(_SKETCHED, {"of_organization": organization}).scalar_one())


def selected_for(tx: Tx, kind: Kind, scopes: Sequence[str], default: str | None) -> dict[str, str]:
    """The selected model of each of these archives, folders, agents or, for tools, organisations, which choose none."""
    if kind == "tool":
        return {} if default is None else dict.fromkeys(scopes, default)
    rows = tx.execute(_SELECTED_FOR[kind], {"ids": list(scopes), "default_model": default})
    return {scope: model for scope, model in rows if model is not None}


def owners(tx: Tx, kind: Kind, scopes: Sequence[str]) -> dict[str, str]:
    """The organisation of each of these archives, folders, agents or, for tools, organisations."""
    if kind == "tool":
        return {scope: scope for scope in scopes}
    return {row.id: row.organization_id for row in tx.execute(_OWNERS_OF[kind], {"ids": list(scopes)})}


def of_archive(tx: Tx, organization: OrganizationId, archive_id: ArchiveId) -> dict[str, str]:
    """The archive, with the model it is searched by, if it can be searched by meaning. Raises NotFound."""
    row = _OF_ARCHIVE.first(tx, {"of_archive": archive_id, "of_organization": organization})
    if row is None:
        raise NotFound("Archive", archive_id)
    return {} if row.model is None else {archive_id: row.model}


def of_organization(tx: Tx, organization: OrganizationId) -> dict[str, str]:
    """The archives of an organisation that can be searched by meaning, with the model they are searched by."""
    rows = tx.execute(_OF_ORGANIZATION, {"of_organization": organization}).all()
    return {row.id: row.model for row in rows}


def of_new(tx: Tx, agent_id: AgentId, default: str | None) -> tuple[str | None, ...]:
    """The models that a new passage of an agent needs vectors of: the one its archive is searched by, and the one that
    is selected for it; without an archive, the agent's own."""
    row = tx.execute(_OF_AGENT, {"of_agent": agent_id}).first()
    if row is None:
        return ()
    archive_id, own = row
    used = vector_rows.models_of(tx, "passage", (archive_id,)).get(archive_id) if archive_id else None
    return used, own or default


def changing(tx: Tx, kind: Kind, default: str | None, most: int) -> dict[str, str]:
    """Scopes that are searched by another model than the selected one, or have vectors of several, with the selected
    model; if none is selected, the one that they are searched by."""
    statement = _CHANGING_TOOLS if kind == "tool" else _CHANGING_OF[kind]
    rows = statement.rows(tx, {"default_model": default, "most": most})
    return {row.scope: row.model for row in rows if row.model is not None}
