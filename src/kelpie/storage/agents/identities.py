"""Identities as rows, and the agents and blocks linked to them.

A key is unique per organisation and project. Links are deleted with either end.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.access.identities import Identity, IdentityQuery, IdentityType, Property, PropertyType
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import IdentityId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.accounts import row_ownership
from kelpie.storage.rows import paging
from kelpie.storage.rows.text_match import inside, pattern
from kelpie.storage.tables import agent_identities, block_identities, identities
from kelpie.world.database import Tx

_ID_CHUNK = 5000  # ids per IN list

_ALL = sa.select(identities)
_OURS = _ALL.where(identities.c.organization_id == sa.bindparam("of_organization"))
_ONE = _OURS.where(identities.c.id == sa.bindparam("of_identity"))
_BY_KEY = _OURS.where(
    identities.c.identifier_key == sa.bindparam("of_key"), identities.c.project_id == sa.bindparam("of_project")
)
_INSERT = sa.insert(identities)
_DELETE = sa.delete(identities).where(identities.c.id == sa.bindparam("of_identity"))
_COUNT = (
    sa.select(sa.func.count())
    .select_from(identities)
    .where(identities.c.organization_id == sa.bindparam("of_organization"))
)

require = row_ownership.owned(row_ownership.owner_of(identities), "Identity")


def _to_row(identity: Identity) -> dict[str, Any]:
    return {
        "id": identity.id,
        "organization_id": identity.organization_id,
        "project_id": identity.project_id or "",
        "identifier_key": identity.identifier_key,
        "name": identity.name,
        "identity_type": identity.identity_type.value,
        "properties": _properties_to_json(identity.properties),
        "created_by_id": identity.created_by_id,
        "last_updated_by_id": identity.last_updated_by_id,
        "created_at": identity.created_at,
        "updated_at": identity.updated_at,
    }


def _properties_to_json(properties: Sequence[Property]) -> list[dict[str, Any]]:
    return [{"key": each.key, "value": each.value, "type": each.type.value} for each in properties]


def _from_row(row: sa.Row[Any]) -> Identity:
    return Identity(
        id=IdentityId(row.id),
        identifier_key=row.identifier_key,
        name=row.name,
        identity_type=IdentityType(row.identity_type),
        created_at=row.created_at,
        updated_at=row.updated_at,
        project_id=row.project_id or None,
        properties=tuple(Property(each["key"], each["value"], PropertyType(each["type"])) for each in row.properties),
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def insert(tx: Tx, identity: Identity) -> None:
    """Writes a new identity. Raises Conflict when its key is taken."""
    try:
        tx.execute(_INSERT, _to_row(identity))
    except IntegrityError as error:
        raise _key_taken(identity.identifier_key) from error


def _key_taken(key: str) -> Conflict:
    return Conflict(f"identifier_key: an identity with the key '{key[:80]}' already exists; update that one instead")


def get(tx: Tx, organization: OrganizationId, identity_id: IdentityId) -> Identity:
    """Raises NotFound."""
    row = tx.execute(_ONE, {"of_organization": organization, "of_identity": identity_id}).first()
    if row is None:
        raise NotFound("Identity", identity_id)
    return _from_row(row)


def by_key(tx: Tx, organization: OrganizationId, key: str, project_id: str | None) -> Identity | None:
    """The identity with this key, if it exists."""
    row = tx.execute(_BY_KEY, {"of_organization": organization, "of_key": key, "of_project": project_id or ""}).first()
    return None if row is None else _from_row(row)


@lru_cache(maxsize=32)
def _update(names: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=identities.c[name].type) for name in names}
    return sa.update(identities).where(identities.c.id == sa.bindparam("of_identity")).values(new)


def update(tx: Tx, identity: Identity, changes: Mapping[str, Any], now: Micros, by: str) -> Identity:
    """Sets fields by name. Raises Conflict when the new key is taken."""
    if not changes:
        return identity
    columns: dict[str, Any] = {**changes, "updated_at": now, "last_updated_by_id": by}
    if "properties" in changes:
        columns["properties"] = _properties_to_json(changes["properties"])
    bound = {f"new_{name}": value for name, value in columns.items()}
    try:
        tx.execute(_update(tuple(sorted(columns))), bound | {"of_identity": identity.id})
    except IntegrityError as error:
        raise _key_taken(str(changes.get("identifier_key"))) from error
    return get(tx, identity.organization_id, identity.id)


def delete(tx: Tx, organization: OrganizationId, identity_id: IdentityId) -> None:
    """Deletes the identity; its agents and blocks stay. Raises NotFound."""
    require(tx, organization, identity_id)
    tx.execute(_DELETE, {"of_identity": identity_id})


def count(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT, {"of_organization": organization}).scalar_one())


_FILTERS: dict[str, sa.ColumnElement[bool]] = {
    "name": inside(identities.c.name, "name"),
    "project_id": identities.c.project_id == sa.bindparam("project_id"),
    "identifier_key": identities.c.identifier_key == sa.bindparam("identifier_key"),
    "identity_type": identities.c.identity_type == sa.bindparam("identity_type"),
}


@lru_cache(maxsize=16)
def _filtered(names: tuple[str, ...]) -> sa.Select[Any]:
    return _OURS.where(*(_FILTERS[name] for name in names))


def select(tx: Tx, organization: OrganizationId, query: IdentityQuery) -> list[Identity]:
    """The identities that match, on the requested page. Raises NotFound for a cursor that is not of this
    organisation."""
    for cursor in (query.page.after, query.page.before):
        if cursor is not None:
            require(tx, organization, cursor)
    given = {name: value for name in _FILTERS if (value := getattr(query, name)) is not None}
    if "name" in given:
        given["name"] = pattern(given["name"])
    bound = given | {"of_organization": organization}
    rows = paging.page(
        tx, _filtered(tuple(given)), identities, query.page, bound, within={"organization_id": organization}
    )
    return [_from_row(row) for row in rows]


# --- links ----------------------------------------------------------------------------------------------------------


class Links:
    """Links of identities to rows of one kind: agents, or blocks."""

    def __init__(self, links: sa.Table, column: str) -> None:
        self._column = column
        self._insert = sa.insert(links)
        mine, identity = links.c[column], links.c.identity_id
        self._there = sa.select(mine, identity).where(
            mine.in_(sa.bindparam("of_rows", expanding=True)),
            identity.in_(sa.bindparam("of_identities", expanding=True)),
        )
        self._drop = sa.delete(links).where(mine == sa.bindparam("of_row"), identity == sa.bindparam("of_identity"))
        self._clear = sa.delete(links).where(mine == sa.bindparam("of_row"))
        self._clear_identity = sa.delete(links).where(identity == sa.bindparam("of_identity"))
        self._of_many = (
            sa.select(mine.label("linked_row"), identities)
            .join(links, identity == identities.c.id)
            .where(mine.in_(sa.bindparam("of_rows", expanding=True)))
            .order_by(identities.c.created_at, identities.c.id)
        )

    def add(self, tx: Tx, row_ids: Sequence[str], ids: Sequence[IdentityId]) -> None:
        """Links each of the rows with each of the identities; existing links stay."""
        wanted = dict.fromkeys((row_id, one) for row_id in row_ids for one in ids)
        if not wanted:
            return
        there = tx.execute(self._there, {"of_rows": list(row_ids), "of_identities": list(ids)})
        for pair in there:
            wanted.pop((pair[0], pair[1]), None)
        if wanted:
            tx.execute(self._insert, [{self._column: row_id, "identity_id": one} for row_id, one in wanted])

    def has_all(self, tx: Tx, identity_id: IdentityId, row_ids: Sequence[str]) -> bool:
        """Checks whether all of the rows are linked with the identity."""
        there = tx.execute(self._there, {"of_rows": list(row_ids), "of_identities": [identity_id]})
        return {pair[0] for pair in there} >= set(row_ids)

    def change(self, tx: Tx, row_id: str, identity_id: IdentityId, *, attach: bool) -> None:
        """Links an identity to a row, or removes the link; does nothing if it is so already."""
        if attach:
            self.add(tx, (row_id,), (identity_id,))
        else:
            tx.execute(self._drop, {"of_row": row_id, "of_identity": identity_id})

    def replace(self, tx: Tx, row_id: str, ids: Sequence[IdentityId]) -> None:
        """Makes these the only identities of the row."""
        tx.execute(self._clear, {"of_row": row_id})
        self.add(tx, (row_id,), ids)

    def replace_rows(self, tx: Tx, identity_id: IdentityId, row_ids: Sequence[str]) -> None:
        """Makes these the only rows of the identity."""
        tx.execute(self._clear_identity, {"of_identity": identity_id})
        self.add(tx, row_ids, (identity_id,))

    def of_rows(self, tx: Tx, row_ids: Sequence[str]) -> dict[str, list[Identity]]:
        """The identities of many rows, oldest first, in one query; rows without any are left out."""
        found: dict[str, list[Identity]] = {}
        for start in range(0, len(row_ids), _ID_CHUNK):
            for row in tx.execute(self._of_many, {"of_rows": list(row_ids[start : start + _ID_CHUNK])}):
                found.setdefault(row.linked_row, []).append(_from_row(row))
        return found


of_agents = Links(agent_identities, "agent_id")
of_blocks = Links(block_identities, "block_id")

_KNOWN = sa.select(identities.c.id).where(
    identities.c.organization_id == sa.bindparam("of_organization"),
    identities.c.id.in_(sa.bindparam("ids", expanding=True)),
)


def require_all(tx: Tx, organization: OrganizationId, ids: Sequence[IdentityId]) -> None:
    """Raises Conflict naming the first id that is not an identity of the organisation."""
    if not ids:
        return
    known = {row[0] for row in tx.execute(_KNOWN, {"of_organization": organization, "ids": list(ids)})}
    missing = next((one for one in ids if one not in known), None)
    if missing is not None:
        raise Conflict(f"identity_ids: no identity has the id {missing}; create it first, or omit it")
