"""Sandbox configurations: settings for the code of tools, and its environment variables.

Custom tools find the variables of the local one in their environment. The server alone decides where and how code runs;
the other fields of a configuration are only stored and shown.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import SandboxConfigId, SandboxVariableId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.tools.environment_variables import check_key, check_value
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxType, SandboxVariable
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tools import sandbox_configs as rows
from kelpie.world.database import Tx
from kelpie.world.world import World


class SandboxConfigs:
    """Sandbox configurations of the caller's organization."""

    def __init__(self, world: World, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._user = caller.user_id
        self._organization = caller.organization_id

    async def ensure(self, kind: SandboxType, config: Mapping[str, Any]) -> SandboxConfig:
        """The configuration of this kind, created from `config` when there is none."""
        made = self._made(kind, config)

        def write(tx: Tx) -> SandboxConfig:
            there = rows.of_type(tx, self._organization, kind)
            if there is None:
                rows.insert(tx, made)
            return there or made

        return await self._world.database.transact(write)

    async def put(self, kind: SandboxType, config: Mapping[str, Any]) -> SandboxConfig:
        """Creates the configuration of this kind, or changes the existing one."""
        made, now = self._made(kind, config), self._world.clock.now()

        def write(tx: Tx) -> SandboxConfig:
            there = rows.of_type(tx, self._organization, kind)
            if there is None:
                rows.insert(tx, made)
                return made
            return self._changed(tx, there, config, now)

        return await self._world.database.transact(write)

    async def update(self, config_id: SandboxConfigId, kind: SandboxType, config: Mapping[str, Any]) -> SandboxConfig:
        """Replaces a configuration by one of its kind. Raises NotFound, InvalidInput."""
        now = self._world.clock.now()

        def write(tx: Tx) -> SandboxConfig:
            there = rows.get(tx, self._organization, config_id)
            if there.type is not kind:
                raise InvalidInput(
                    "config",
                    f"is for '{kind}', but the type of this sandbox is '{there.type}'; the type cannot be changed",
                )
            return self._changed(tx, there, config, now)

        return await self._world.database.transact(write)

    async def delete(self, config_id: SandboxConfigId) -> None:
        """Deletes a configuration with its variables. Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete(tx, self._organization, config_id))

    # --- variables -----------------------------------------------------------------------------------------------

    async def add_variable(
        self, config_id: SandboxConfigId, key: str, value: str, description: str | None
    ) -> SandboxVariable:
        """Raises NotFound for the configuration, InvalidInput, or Conflict when it has a variable of that key."""
        now = self._world.clock.now()
        made = SandboxVariable(
            id=self._world.ids.new(SandboxVariableId),
            sandbox_config_id=config_id,
            key=check_key("key", key),
            value=check_value("value", value),
            created_at=now,
            updated_at=now,
            description=description,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )
        sealing = self._sealing()
        await self._world.database.transact(lambda tx: rows.insert_variable(tx, made, sealing))
        return made

    async def update_variable(self, variable_id: SandboxVariableId, changes: Mapping[str, str]) -> SandboxVariable:
        """Changes `key`, `value` or `description`. Raises NotFound, InvalidInput, Conflict."""
        if "key" in changes:
            check_key("key", changes["key"])
        check_value("value", changes.get("value", ""))
        now, sealing = self._world.clock.now(), self._sealing()

        def write(tx: Tx) -> SandboxVariable:
            before = rows.get_variable(tx, self._organization, variable_id, self._world.keyring)
            unreadable = None if "value" in changes else before.unreadable
            after = replace(before, **dict(changes), unreadable=unreadable)
            if after != before:
                after = replace(after, updated_at=now, last_updated_by_id=self._user)
                rows.replace_variable(tx, after, sealing)
            return after

        return await self._world.database.transact(write)

    async def delete_variable(self, variable_id: SandboxVariableId) -> None:
        """Raises NotFound."""
        await self._world.database.transact(lambda tx: rows.delete_variable(tx, self._organization, variable_id))

    async def variables(self, config_id: SandboxConfigId, page: Page) -> list[SandboxVariable]:
        """Raises NotFound, and InvalidInput for an invalid page."""
        keyring = self._world.keyring
        return await self._world.database.read(
            lambda tx: rows.variables(tx, self._organization, config_id, page, keyring)
        )

    def _sealing(self) -> Sealing:
        return Sealing(self._world.keyring, self._world.ids.secret())

    def _made(self, kind: SandboxType, config: Mapping[str, Any]) -> SandboxConfig:
        now = self._world.clock.now()
        return SandboxConfig(
            id=self._world.ids.new(SandboxConfigId),
            type=kind,
            config=config,
            created_at=now,
            updated_at=now,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )

    def _changed(self, tx: Tx, there: SandboxConfig, config: Mapping[str, Any], now: Micros) -> SandboxConfig:
        after = replace(there, config=config, updated_at=now, last_updated_by_id=self._user)
        rows.replace(tx, after)
        return after

    async def page(self, page: Page) -> list[SandboxConfig]:
        """Raises InvalidInput for an invalid page."""
        return await self._world.database.read(lambda tx: rows.select(tx, self._organization, page))
