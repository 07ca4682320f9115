"""Model providers of organizations as rows. A name is unique in its organization. The keys are encrypted."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import Conflict, NotFound, SecretUnreadable
from kelpie.core.ids import OrganizationId, ProviderId
from kelpie.core.models.model_providers import ModelProvider, ProviderAccess, ProviderQuery
from kelpie.core.time import Micros
from kelpie.storage.encryption.sealing import Sealing, text_of
from kelpie.storage.rows.paging import Paging
from kelpie.storage.tables import providers
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

PROVIDERS_MAX = 100  # of one organization

_KEYS = ("api_key", "access_key")
_PAGES = Paging(providers, "created_at")
_OURS = sa.select(providers).where(providers.c.organization_id == sa.bindparam("of_organization"))
_ALL = _OURS.order_by(providers.c.created_at, providers.c.id).limit(PROVIDERS_MAX)
_ONE = _OURS.where(providers.c.id == sa.bindparam("of_provider"))
_ONE_LOCKED = _ONE.with_for_update()
_NAMED = _OURS.where(providers.c.name == sa.bindparam("of_name"))
_OF_TYPE = _OURS.where(providers.c.provider_type == sa.bindparam("of_type"))
_NAMED_OF_TYPE = _NAMED.where(providers.c.provider_type == sa.bindparam("of_type"))
_COUNT = sa.select(sa.func.count()).where(providers.c.organization_id == sa.bindparam("of_organization"))
_INSERT = sa.insert(providers)
_DELETE = sa.delete(providers).where(providers.c.id == sa.bindparam("of_provider"))
_FIXED = {"id", "organization_id", "name", "provider_type", "last_synced_at", "created_by_id", "created_at"}
_CHANGEABLE = [column for column in providers.c if column.name not in _FIXED]
_UPDATE = (
    sa.update(providers)
    .where(providers.c.id == sa.bindparam("of_provider"))
    .values({column.name: sa.bindparam(f"new_{column.name}", type_=column.type) for column in _CHANGEABLE})
)
_SYNCED = (
    sa.update(providers)
    .where(providers.c.id == sa.bindparam("of_provider"))
    .values(last_synced_at=sa.bindparam("new_synced_at"))
)


def get(
    tx: Tx, organization: OrganizationId, provider_id: str, keyring: Keyring, *, lock: bool = False
) -> ModelProvider:
    """Raises NotFound."""
    bound = {"of_organization": organization, "of_provider": provider_id}
    row = tx.execute(_ONE_LOCKED if lock else _ONE, bound).first()
    if row is None:
        raise NotFound("Provider", provider_id[:80])
    return _from_row(row, keyring)


def select(tx: Tx, organization: OrganizationId, keyring: Keyring) -> list[ModelProvider]:
    """All providers of an organization, oldest first."""
    return [_from_row(row, keyring) for row in tx.execute(_ALL, {"of_organization": organization})]


def page(tx: Tx, organization: OrganizationId, query: ProviderQuery, keyring: Keyring) -> list[ModelProvider]:
    bound: dict[str, str] = {"of_organization": organization}
    statement = _OURS
    if query.name is not None:
        bound["of_name"], statement = query.name, _NAMED
    if query.provider_type is not None:
        bound["of_type"], statement = query.provider_type, _OF_TYPE if statement is _OURS else _NAMED_OF_TYPE
    rows = _PAGES.rows(tx, statement, query.page, bound, within={"organization_id": organization})
    return [_from_row(row, keyring) for row in rows]


def insert(tx: Tx, provider: ModelProvider, sealing: Sealing) -> None:
    """Raises Conflict when the name is taken or there are too many, and SecretUnreadable when there is no key."""
    organization = provider.organization_id
    if tx.execute(_NAMED, {"of_organization": organization, "of_name": provider.name}).first() is not None:
        raise Conflict(
            f"A provider with the name '{provider.name}' already exists; update that one or use another name."
        )
    if int(tx.execute(_COUNT, {"of_organization": organization}).scalar_one()) >= PROVIDERS_MAX:
        raise Conflict(f"The organization has {PROVIDERS_MAX} providers, and may have no more; delete one first.")
    tx.execute(_INSERT, _to_row(provider, _sealed(tx, provider, sealing)))


def replace(tx: Tx, provider: ModelProvider, sealing: Sealing) -> None:
    """Writes every field of an existing provider that can change. Raises SecretUnreadable when there is no key."""
    row = _to_row(provider, _sealed(tx, provider, sealing))
    bound = {f"new_{column.name}": row[column.name] for column in _CHANGEABLE}
    tx.execute(_UPDATE, bound | {"of_provider": provider.id})


def set_synced(tx: Tx, provider_id: ProviderId, at: Micros) -> None:
    """Records when the models of a provider were last listed."""
    tx.execute(_SYNCED, {"of_provider": provider_id, "new_synced_at": at})


def delete(tx: Tx, organization: OrganizationId, provider_id: str) -> None:
    """Raises NotFound."""
    row = tx.execute(_ONE_LOCKED, {"of_organization": organization, "of_provider": provider_id}).first()
    if row is None:
        raise NotFound("Provider", provider_id[:80])
    tx.execute(_DELETE, {"of_provider": row.id})


def _to_row(provider: ModelProvider, sealed: Mapping[str, str | None]) -> dict[str, Any]:
    access = provider.access
    return {
        "id": provider.id,
        "organization_id": provider.organization_id,
        "name": provider.name,
        "provider_type": access.provider_type,
        "base_url": access.base_url,
        "region": access.region,
        "api_version": access.api_version,
        "revision": provider.revision,
        "last_synced_at": provider.last_synced_at,
        "created_by_id": provider.created_by_id,
        "last_updated_by_id": provider.last_updated_by_id,
        "created_at": provider.created_at,
        "updated_at": provider.updated_at,
        **sealed,
    }


def _sealed(tx: Tx, provider: ModelProvider, sealing: Sealing) -> dict[str, str | None]:
    """The keys as they are stored. Raises SecretUnreadable when there is no key to encrypt them with."""
    texts = {name: getattr(provider.access, name) for name in _KEYS}
    if all(text is None for text in texts.values()):
        return texts
    key = sealing.key(tx)
    return {
        name: None if text is None else key.seal(_place(provider.id, name), sealing.seed, text)
        for name, text in texts.items()
    }


def _place(provider_id: str, column: str) -> SecretPlace:
    return SecretPlace(providers.name, provider_id, column)


def _from_row(row: sa.Row[Any], keyring: Keyring) -> ModelProvider:
    unreadable: dict[str, str] = {}
    opened: dict[str, str | None] = dict.fromkeys(_KEYS)
    for name in _KEYS:
        if (stored := getattr(row, name)) is not None:
            try:
                opened[name] = text_of(keyring, _place(row.id, name), stored)
            except SecretUnreadable as error:
                unreadable[name] = str(error)
    return ModelProvider(
        id=ProviderId(row.id),
        organization_id=OrganizationId(row.organization_id),
        name=row.name,
        access=ProviderAccess(
            provider_type=row.provider_type,
            base_url=row.base_url,
            region=row.region,
            api_version=row.api_version,
            **opened,
        ),
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_synced_at=row.last_synced_at,
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
        unreadable=unreadable,
    )
