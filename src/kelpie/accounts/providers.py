"""Model providers that an organization adds with its own keys: added, read, changed, checked and removed.

The keys leave this module only towards the provider they are for. What is stored counts for the next model call; see
`llm.routing.own_providers`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import Conflict, InvalidInput, ModelError, NotFound, StorageError
from kelpie.core.ids import OrganizationId, ProviderId
from kelpie.core.models.model_providers import (
    UNSAVED,
    ModelProvider,
    ProviderAccess,
    ProviderQuery,
    check_access,
    check_name,
    origin,
)
from kelpie.llm.routing.models import Models
from kelpie.observe import logs
from kelpie.storage import providers as rows
from kelpie.storage.encryption.sealing import Sealing
from kelpie.world.database import Tx
from kelpie.world.world import World

_log = logs.get("llm")


class StoredProviders:
    """Reads the providers of any organization, for its model calls."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, organization: OrganizationId) -> Sequence[ModelProvider]:
        """All of them, oldest first. Raises StorageError."""
        keyring = self._world.keyring
        return await self._world.database.read(lambda tx: rows.select(tx, organization, keyring))


class Providers:
    """Model providers of the caller's organization, whose `models` these are. `private` allows addresses that are not
    public."""

    def __init__(self, world: World, models: Models, *, private: bool, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._models = models
        self._private = private
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def page(self, query: ProviderQuery) -> list[ModelProvider]:
        keyring = self._world.keyring
        return await self._world.database.read(lambda tx: rows.page(tx, self._organization, query, keyring))

    async def get(self, provider_id: ProviderId) -> ModelProvider:
        """Raises NotFound."""
        keyring = self._world.keyring
        return await self._world.database.read(lambda tx: rows.get(tx, self._organization, provider_id, keyring))

    async def create(self, name: str, access: ProviderAccess) -> ModelProvider:
        """Adds a provider and lists its models, if it answers. Raises InvalidInput, or Conflict when the name is
        taken."""
        check_name(name)
        if self._models.is_shared(f"{name}/"):
            raise InvalidInput(
                "name",
                f"Provider name '{name}' conflicts with an existing base provider. Please choose a different name.",
            )
        made, sealing = self._record(name, access), self._sealing()
        await self._world.database.transact(lambda tx: rows.insert(tx, made, sealing))
        try:
            await self._list(made)
        except (ModelError, NotFound, StorageError) as error:  # the provider is stored all the same
            told = error.message if isinstance(error, ModelError) else str(error)
            _log.warning(
                "provider_models_unread",
                "Models of a new provider could not be listed; they are asked for again when they are needed",
                provider=name,
                error=told,
            )
        return made

    async def update(self, provider_id: ProviderId, changes: Mapping[str, Any]) -> ModelProvider:
        """Changes the given fields of what a provider is called with. Raises NotFound, InvalidInput, Conflict."""
        now, sealing, keyring = self._world.clock.now(), self._sealing(), self._world.keyring

        def write(tx: Tx) -> ModelProvider:
            before = rows.get(tx, self._organization, provider_id, keyring, lock=True)
            access = replace(before.access, **changes)
            _check_kept(before, access, changes)
            check_access(access, private=self._private)
            after = replace(
                before,
                access=access,
                revision=before.revision + 1,
                updated_at=now,
                last_updated_by_id=self._user,
                unreadable={},
            )
            rows.replace(tx, after, sealing)
            return after

        return await self._world.database.transact(write)

    async def delete(self, provider_id: ProviderId) -> None:
        """Deletes a provider; agents that use its models say so until they get another. Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete(tx, self._organization, provider_id))

    async def check(self, access: ProviderAccess) -> None:
        """Asks a provider that is not stored for its models. Raises InvalidInput, ModelError."""
        await self._models.try_own(self._record(UNSAVED, access))

    async def check_stored(self, provider_id: ProviderId) -> ModelProvider:
        """Asks a stored provider for its models. Raises NotFound, Conflict, ModelError."""
        found = await self.get(provider_id)
        if found.unreadable:
            raise Conflict(f"{' '.join(found.unreadable.values())} Set the key again.")
        await self._models.try_own(found)
        return found

    async def refresh(self, provider_id: ProviderId) -> ModelProvider:
        """Lists the models of a provider again. Raises NotFound, ModelError."""
        await self._list(await self.get(provider_id))
        return await self.get(provider_id)

    async def _list(self, provider: ModelProvider) -> None:
        await self._models.renew(provider.name)
        now = self._world.clock.now()
        await self._world.database.transact(lambda tx: rows.set_synced(tx, provider.id, now))

    def _record(self, name: str, access: ProviderAccess) -> ModelProvider:
        """The record of a new provider, checked but not stored. Raises InvalidInput."""
        check_access(access, private=self._private)
        now = self._world.clock.now()
        return ModelProvider(
            id=self._world.ids.new(ProviderId),
            organization_id=self._organization,
            name=name,
            access=access,
            revision=1,
            created_at=now,
            updated_at=now,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )

    def _sealing(self) -> Sealing:
        return Sealing(self._world.keyring, self._world.ids.secret())


def _check_kept(before: ModelProvider, access: ProviderAccess, changed: Collection[str]) -> None:
    """Raises InvalidInput for a change that would send a stored key to another host, and Conflict for one that would
    drop a key because it cannot be decrypted."""
    moved = origin(before.access) != origin(access)
    for name in ("api_key", "access_key"):
        if name in changed:
            continue
        if name in before.unreadable:
            raise Conflict(f"{name}: {before.unreadable[name]} This request would remove it; set it in this request.")
        if moved and getattr(access, name) is not None:
            raise InvalidInput(
                name, "a stored key is not sent to another host; send the key together with the new base_url"
            )
