"""Organisations and users as rows."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.access.callers import DEFAULT_ORGANIZATION_NAME, DEFAULT_USER_NAME, Organization, User
from kelpie.core.errors import NotFound
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, OrganizationId, UserId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.tools.tools import ToolType
from kelpie.search import scope_removal
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import access_tokens, api_keys, metadata, organizations, tools, users
from kelpie.world.database import Tx

_ORGANIZATION_PAGES = Paging(organizations, "created_at")
_USER_PAGES = Paging(users, "created_at")

_ORGANIZATIONS = sa.select(organizations)
_ORGANIZATION = _ORGANIZATIONS.where(organizations.c.id == sa.bindparam("of_organization"))
_ORGANIZATION_IDS = sa.select(organizations.c.id).order_by(organizations.c.id)
_INSERT_ORGANIZATION = sa.insert(organizations)
_UPDATE_ORGANIZATION = (
    sa.update(organizations)
    .where(organizations.c.id == sa.bindparam("of_organization"))
    .values(
        name=sa.bindparam("new_name"),
        privileged_tools=sa.bindparam("new_privileged_tools"),
        updated_at=sa.bindparam("new_updated_at"),
    )
)
_DELETE_ORGANIZATION = sa.delete(organizations).where(organizations.c.id == sa.bindparam("of_organization"))

_USERS = sa.select(users)
_USERS_OF = _USERS.where(users.c.organization_id == sa.bindparam("of_organization"))
_USER = _USERS.where(users.c.id == sa.bindparam("of_user"))
_INSERT_USER = sa.insert(users)
_UPDATE_USER = (
    sa.update(users)
    .where(users.c.id == sa.bindparam("of_user"))
    .values(
        name=sa.bindparam("new_name"),
        organization_id=sa.bindparam("new_organization_id"),
        updated_at=sa.bindparam("new_updated_at"),
    )
)
_DELETE_USER = sa.delete(users).where(users.c.id == sa.bindparam("of_user"))
_DELETE_KEYS = sa.delete(api_keys).where(api_keys.c.user_id == sa.bindparam("of_user"))
_DELETE_TOKENS = sa.delete(access_tokens).where(access_tokens.c.user_id == sa.bindparam("of_user"))

# The built-in tools of an organisation are deleted with it; no client created them.
_BUILT_IN = tools.c.tool_type.in_([kind.value for kind in ToolType if kind is not ToolType.custom])
_DELETE_BUILT_IN = sa.delete(tools).where(tools.c.organization_id == sa.bindparam("of_organization"), _BUILT_IN)


def _left_in(table: sa.Table) -> sa.Select[Any]:
    own = table.c.organization_id == sa.bindparam("of_organization")
    found = sa.select(sa.literal(table.name)).select_from(table).where(own)
    return (found.where(~_BUILT_IN) if table is tools else found).limit(1)


# Every table with an organisation column, whichever package it belongs to, but those about the organisation itself.
_ABOUT_ITSELF = ("organization_quotas", "organization_usage")
_LEFT = tuple(
    _left_in(table)
    for table in sorted(metadata.tables.values(), key=lambda each: each.name)
    if "organization_id" in table.c and table.name not in _ABOUT_ITSELF
)


def _organization(row: sa.Row[Any]) -> Organization:
    return Organization(OrganizationId(row.id), row.name, row.privileged_tools, row.created_at, row.updated_at)


def _user(row: sa.Row[Any]) -> User:
    return User(UserId(row.id), OrganizationId(row.organization_id), row.name, row.created_at, row.updated_at)


# --- organisations --------------------------------------------------------------------------------------------------


def ensure_defaults(tx: Tx, now: Micros) -> None:
    """Creates the default organisation and user, which own everything when a client names no others."""
    if tx.execute(_ORGANIZATION, {"of_organization": DEFAULT_ORGANIZATION}).first() is None:
        insert_organization(tx, Organization(DEFAULT_ORGANIZATION, DEFAULT_ORGANIZATION_NAME, False, now, now))
    if find_user(tx, DEFAULT_USER) is None:
        insert_user(tx, User(DEFAULT_USER, DEFAULT_ORGANIZATION, DEFAULT_USER_NAME, None, now))


def insert_organization(tx: Tx, organization: Organization) -> None:
    tx.execute(
        _INSERT_ORGANIZATION,
        {
            "id": organization.id,
            "name": organization.name,
            "privileged_tools": organization.privileged_tools,
            "created_at": organization.created_at,
            "updated_at": organization.updated_at,
        },
    )


def get_organization(tx: Tx, organization: OrganizationId) -> Organization:
    """Raises NotFound."""
    row = tx.execute(_ORGANIZATION, {"of_organization": organization}).first()
    if row is None:
        raise NotFound("Organization", organization)
    return _organization(row)


def organizations_page(tx: Tx, page: Page) -> list[Organization]:
    return [_organization(row) for row in _ORGANIZATION_PAGES.rows(tx, _ORGANIZATIONS, page, within={})]


def organization_ids(tx: Tx) -> list[OrganizationId]:
    return [OrganizationId(row[0]) for row in tx.execute(_ORGANIZATION_IDS)]


def update_organization(tx: Tx, changed: Organization) -> None:
    tx.execute(
        _UPDATE_ORGANIZATION,
        {
            "of_organization": changed.id,
            "new_name": changed.name,
            "new_privileged_tools": changed.privileged_tools,
            "new_updated_at": changed.updated_at,
        },
    )


def left_in(tx: Tx, organization: OrganizationId) -> Sequence[str]:
    """The kinds of rows that still belong to the organisation, built-in tools aside."""
    found = (tx.execute(statement, {"of_organization": organization}).scalar() for statement in _LEFT)
    return [name for name in found if name is not None]


def delete_organization(tx: Tx, organization: OrganizationId) -> None:
    """Deletes an empty organisation and its built-in tools."""
    scope_removal.discard_scope(tx, "tool", organization)
    tx.execute(_DELETE_BUILT_IN, {"of_organization": organization})
    tx.execute(_DELETE_ORGANIZATION, {"of_organization": organization})


# --- users ----------------------------------------------------------------------------------------------------------


def insert_user(tx: Tx, user: User) -> None:
    tx.execute(
        _INSERT_USER,
        {
            "id": user.id,
            "organization_id": user.organization_id,
            "name": user.name,
            "created_at": user.created_at,
            "updated_at": user.updated_at,
        },
    )


def find_user(tx: Tx, user_id: UserId) -> User | None:
    row = tx.execute(_USER, {"of_user": user_id}).first()
    return None if row is None else _user(row)


def get_user(tx: Tx, user_id: UserId) -> User:
    """Raises NotFound."""
    found = find_user(tx, user_id)
    if found is None:
        raise NotFound("User", user_id)
    return found


def users_page(tx: Tx, organization: OrganizationId | None, page: Page) -> list[User]:
    """The users of one organisation, or of all when none is named."""
    if organization is None:
        return [_user(row) for row in _USER_PAGES.rows(tx, _USERS, page, within={})]
    rows = _USER_PAGES.rows(
        tx, _USERS_OF, page, {"of_organization": organization}, within={"organization_id": organization}
    )
    return [_user(row) for row in rows]


def update_user(tx: Tx, changed: User) -> None:
    tx.execute(
        _UPDATE_USER,
        {
            "of_user": changed.id,
            "new_name": changed.name,
            "new_organization_id": changed.organization_id,
            "new_updated_at": changed.updated_at,
        },
    )


def end_credentials(tx: Tx, user_id: UserId) -> None:
    """Deletes the user's keys and tokens."""
    tx.execute(_DELETE_KEYS, {"of_user": user_id})
    tx.execute(_DELETE_TOKENS, {"of_user": user_id})


def delete_user(tx: Tx, user_id: UserId) -> None:
    """Deletes the user, with the user's keys and tokens."""
    tx.execute(_DELETE_USER, {"of_user": user_id})
