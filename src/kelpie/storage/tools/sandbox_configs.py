"""Sandbox configurations and their environment variables as rows: one configuration of each kind in an organisation.

The values of variables are encrypted.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import OrganizationId, SandboxConfigId, SandboxVariableId
from kelpie.core.paging import Page
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxType, SandboxVariable
from kelpie.storage.encryption.sealing import Sealing, opened, text_of
from kelpie.storage.rows import paging
from kelpie.storage.tables import sandbox_configs, sandbox_variables
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

_CONFIGS = sa.select(sandbox_configs).where(sandbox_configs.c.organization_id == sa.bindparam("of_organization"))
_CONFIG = _CONFIGS.where(sandbox_configs.c.id == sa.bindparam("of_config"))
_TYPED = _CONFIGS.where(sandbox_configs.c.type == sa.bindparam("of_type"))
_INSERT_CONFIG = sa.insert(sandbox_configs)
_DELETE_CONFIG = sa.delete(sandbox_configs).where(sandbox_configs.c.id == sa.bindparam("of_config"))
_DELETE_VARIABLES = sa.delete(sandbox_variables).where(
    sandbox_variables.c.sandbox_config_id == sa.bindparam("of_config")
)
_CHANGE_CONFIG = (
    sa.update(sandbox_configs)
    .where(sandbox_configs.c.id == sa.bindparam("of_config"))
    .values(
        {
            name: sa.bindparam(f"new_{name}", type_=sandbox_configs.c[name].type)
            for name in ("config", "updated_at", "last_updated_by_id")
        }
    )
)
_VARIABLES = sa.select(sandbox_variables).where(sandbox_variables.c.sandbox_config_id == sa.bindparam("of_config"))
_VARIABLE = sa.select(sandbox_variables).where(
    sandbox_variables.c.organization_id == sa.bindparam("of_organization"),
    sandbox_variables.c.id == sa.bindparam("of_variable"),
)
_ENVIRONMENT = (
    sa.select(sandbox_variables.c.id, sandbox_variables.c.key, sandbox_variables.c.value)
    .join(sandbox_configs, sandbox_configs.c.id == sandbox_variables.c.sandbox_config_id)
    .where(sandbox_configs.c.organization_id == sa.bindparam("of_organization"))
    .where(sandbox_configs.c.type == SandboxType.local.value)
    .order_by(sandbox_variables.c.key)
)
_KEYED = _VARIABLES.where(sandbox_variables.c.key == sa.bindparam("of_key"))
_INSERT_VARIABLE = sa.insert(sandbox_variables)
_DELETE_VARIABLE = sa.delete(sandbox_variables).where(sandbox_variables.c.id == sa.bindparam("of_variable"))
_CHANGE_VARIABLE = (
    sa.update(sandbox_variables)
    .where(sandbox_variables.c.id == sa.bindparam("of_variable"))
    .values(
        {
            name: sa.bindparam(f"new_{name}", type_=sandbox_variables.c[name].type)
            for name in ("key", "value", "description", "updated_at", "last_updated_by_id")
        }
    )
)


def _config(row: sa.Row[Any]) -> SandboxConfig:
    return SandboxConfig(
        id=SandboxConfigId(row.id),
        type=SandboxType(row.type),
        config=row.config,
        created_at=row.created_at,
        updated_at=row.updated_at,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def _variable(row: sa.Row[Any], keyring: Keyring) -> SandboxVariable:
    value = opened(keyring, _place(row.id), row.value)
    return SandboxVariable(
        id=SandboxVariableId(row.id),
        sandbox_config_id=SandboxConfigId(row.sandbox_config_id),
        key=row.key,
        value=value.text,
        created_at=row.created_at,
        updated_at=row.updated_at,
        description=row.description,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
        unreadable=value.unreadable,
    )


def _place(variable_id: str) -> SecretPlace:
    return SecretPlace(sandbox_variables.name, variable_id, "value")


# --- configurations -------------------------------------------------------------------------------------------------


def get(tx: Tx, organization: OrganizationId, config_id: SandboxConfigId) -> SandboxConfig:
    """Raises NotFound."""
    row = tx.execute(_CONFIG, {"of_organization": organization, "of_config": config_id}).first()
    if row is None:
        raise NotFound("SandboxConfig", config_id)
    return _config(row)


def of_type(tx: Tx, organization: OrganizationId, kind: SandboxType) -> SandboxConfig | None:
    """The organisation's configuration of this kind, if it has one."""
    row = tx.execute(_TYPED, {"of_organization": organization, "of_type": kind.value}).first()
    return None if row is None else _config(row)


def select(tx: Tx, organization: OrganizationId, page: Page) -> list[SandboxConfig]:
    """A page of configurations. Raises InvalidInput for an invalid page."""
    rows = paging.page(
        tx, _CONFIGS, sandbox_configs, page, {"of_organization": organization}, within={"organization_id": organization}
    )
    return [_config(row) for row in rows]


def insert(tx: Tx, config: SandboxConfig) -> None:
    """Writes a configuration. Raises Conflict when there is one of its kind."""
    row = {column.name: getattr(config, column.name) for column in sandbox_configs.c}
    try:
        tx.execute(_INSERT_CONFIG, row | {"type": config.type.value, "config": dict(config.config)})
    except IntegrityError as error:
        raise Conflict(f"a '{config.type}' sandbox configuration already exists; update that one") from error


def replace(tx: Tx, config: SandboxConfig) -> None:
    """Writes the changeable fields of an existing configuration."""
    new = {"config": dict(config.config)}
    new |= {name: getattr(config, name) for name in ("updated_at", "last_updated_by_id")}
    tx.execute(_CHANGE_CONFIG, {f"new_{name}": value for name, value in new.items()} | {"of_config": config.id})


def delete(tx: Tx, organization: OrganizationId, config_id: SandboxConfigId) -> None:
    """Deletes a configuration with its variables. Raises NotFound."""
    get(tx, organization, config_id)
    tx.execute(_DELETE_VARIABLES, {"of_config": config_id})
    tx.execute(_DELETE_CONFIG, {"of_config": config_id})


# --- variables ------------------------------------------------------------------------------------------------------


def variables(
    tx: Tx, organization: OrganizationId, config_id: SandboxConfigId, page: Page, keyring: Keyring
) -> list[SandboxVariable]:
    """A page of a configuration's variables. Raises NotFound, or InvalidInput for an invalid page."""
    get(tx, organization, config_id)
    rows = paging.page(
        tx, _VARIABLES, sandbox_variables, page, {"of_config": config_id}, within={"sandbox_config_id": config_id}
    )
    return [_variable(row, keyring) for row in rows]


def environment(tx: Tx, organization: OrganizationId, keyring: Keyring) -> dict[str, str]:
    """The environment variables of every tool of the organisation: those of its local configuration.

    Raises SecretUnreadable.
    """
    rows = tx.execute(_ENVIRONMENT, {"of_organization": organization})
    return {row.key: text_of(keyring, _place(row.id), row.value) for row in rows}


def get_variable(
    tx: Tx, organization: OrganizationId, variable_id: SandboxVariableId, keyring: Keyring
) -> SandboxVariable:
    """Raises NotFound."""
    return _variable(_variable_row(tx, organization, variable_id), keyring)


def _variable_row(tx: Tx, organization: OrganizationId, variable_id: SandboxVariableId) -> sa.Row[Any]:
    row = tx.execute(_VARIABLE, {"of_organization": organization, "of_variable": variable_id}).first()
    if row is None:
        raise NotFound("SandboxEnvironmentVariable", variable_id)
    return row


def insert_variable(tx: Tx, variable: SandboxVariable, sealing: Sealing) -> None:
    """Writes a variable.

    Raises NotFound for the configuration, Conflict when its key is taken, and SecretUnreadable when there is no key to
    encrypt it with.
    """
    get(tx, variable.organization_id, variable.sandbox_config_id)
    _check_key(tx, variable)
    row = {column.name: getattr(variable, column.name) for column in sandbox_variables.c}
    tx.execute(_INSERT_VARIABLE, row | {"value": _sealed(tx, variable, sealing)})


def replace_variable(tx: Tx, variable: SandboxVariable, sealing: Sealing) -> None:
    """Writes the changeable fields of an existing variable; a value that cannot be read stays as it is stored.

    Raises Conflict when its new key is taken, and SecretUnreadable when there is no key to encrypt it with.
    """
    _check_key(tx, variable)
    names = ("key", "value", "description", "updated_at", "last_updated_by_id")
    new = {f"new_{name}": getattr(variable, name) for name in names}
    if variable.unreadable is None:
        new["new_value"] = _sealed(tx, variable, sealing)
    else:
        new["new_value"] = _variable_row(tx, variable.organization_id, variable.id).value
    tx.execute(_CHANGE_VARIABLE, new | {"of_variable": variable.id})


def delete_variable(tx: Tx, organization: OrganizationId, variable_id: SandboxVariableId) -> None:
    """Raises NotFound."""
    _variable_row(tx, organization, variable_id)
    tx.execute(_DELETE_VARIABLE, {"of_variable": variable_id})


def _sealed(tx: Tx, variable: SandboxVariable, sealing: Sealing) -> str:
    return sealing.key(tx).seal(_place(variable.id), sealing.seed, variable.value)


def _check_key(tx: Tx, variable: SandboxVariable) -> None:
    taken = tx.execute(_KEYED, {"of_config": variable.sandbox_config_id, "of_key": variable.key}).first()
    if taken is not None and taken.id != variable.id:
        raise Conflict(f"the sandbox already has a variable '{variable.key[:80]}'; update that one")
