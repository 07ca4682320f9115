"""API keys as rows. A secret is stored as its digest; it leaves this module only to be compared."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from kelpie.core.access.credential_scopes import ApiKey, Scope
from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, KeyId, OrganizationId, ProjectId, UserId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import api_keys
from kelpie.world.database import Tx

_PAGES = Paging(api_keys, "created_at")
_ALL = sa.select(api_keys)
_OF_ORGANIZATION = _ALL.where(api_keys.c.organization_id == sa.bindparam("of_organization"))
_ONE = _ALL.where(api_keys.c.id == sa.bindparam("of_key"))
_COUNT = sa.select(sa.func.count()).where(api_keys.c.organization_id == sa.bindparam("of_organization"))
_INSERT = sa.insert(api_keys)
_DELETE = sa.delete(api_keys).where(api_keys.c.id == sa.bindparam("of_key"))
_USED = (
    sa.update(api_keys).where(api_keys.c.id == sa.bindparam("of_key")).values(last_used_at=sa.bindparam("new_used_at"))
)


def _from_row(row: sa.Row[Any]) -> ApiKey:
    return ApiKey(
        id=KeyId(row.id),
        organization_id=OrganizationId(row.organization_id),
        user_id=UserId(row.user_id),
        name=row.name,
        scopes=tuple(Scope(each) for each in row.scopes),
        hint=row.hint,
        created_at=row.created_at,
        agent_ids=None if row.agent_ids is None else tuple(AgentId(each) for each in row.agent_ids),
        project_ids=None if row.project_ids is None else tuple(ProjectId(each) for each in row.project_ids),
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
    )


def insert(tx: Tx, key: ApiKey, digest: str) -> None:
    tx.execute(
        _INSERT,
        {
            "id": key.id,
            "organization_id": key.organization_id,
            "user_id": key.user_id,
            "name": key.name,
            "digest": digest,
            "hint": key.hint,
            "scopes": [scope.value for scope in key.scopes],
            "agent_ids": None if key.agent_ids is None else [str(each) for each in key.agent_ids],
            "project_ids": None if key.project_ids is None else [str(each) for each in key.project_ids],
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "last_used_at": key.last_used_at,
        },
    )


def find(tx: Tx, key_id: KeyId) -> tuple[ApiKey, str] | None:
    """The key and the digest of its secret."""
    row = tx.execute(_ONE, {"of_key": key_id}).first()
    return None if row is None else (_from_row(row), row.digest)


def get(tx: Tx, key_id: KeyId) -> ApiKey:
    """Raises NotFound."""
    found = find(tx, key_id)
    if found is None:
        raise NotFound("Key", key_id)
    return found[0]


def count(tx: Tx, organization: OrganizationId) -> int:
    return int(tx.execute(_COUNT, {"of_organization": organization}).scalar_one())


def page(tx: Tx, organization: OrganizationId | None, wanted: Page) -> list[ApiKey]:
    """The keys of one organisation, or of all when none is named."""
    if organization is None:
        return [_from_row(row) for row in _PAGES.rows(tx, _ALL, wanted, within={})]
    rows = _PAGES.rows(
        tx, _OF_ORGANIZATION, wanted, {"of_organization": organization}, within={"organization_id": organization}
    )
    return [_from_row(row) for row in rows]


def delete(tx: Tx, key_id: KeyId) -> None:
    tx.execute(_DELETE, {"of_key": key_id})


def record_use(tx: Tx, times: Mapping[KeyId, Micros]) -> None:
    """Records the last use of each of these keys; deleted ones are skipped."""
    if times:
        tx.execute(_USED, [{"of_key": key_id, "new_used_at": at} for key_id, at in times.items()])
