"""Sandbox configurations and their environment variables as rows: one configuration of each kind in an organisation."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, NotFound
from kelpie.core.ids import OrganizationId, SandboxConfigId, SandboxVariableId
from kelpie.core.paging import Page
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxType, SandboxVariable
from kelpie.storage.rows import paging
from kelpie.storage.tables import sandbox_configs, sandbox_variables
from kelpie.world.database import Tx

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
    sa.select(sandbox_variables.c.key, sandbox_variables.c.value)
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


def _variable(row: sa.Row[Any]) -> SandboxVariable:
    return SandboxVariable(
        id=SandboxVariableId(row.id),
        sandbox_config_id=SandboxConfigId(row.sandbox_config_id),
        key=row.key,
        value=row.value,
        created_at=row.created_at,
        updated_at=row.updated_at,
        description=row.description,
        organization_id=OrganizationId(row.organization_id),
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


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


def variables(tx: Tx, organization: OrganizationId, config_id: SandboxConfigId, page: Page) -> list[SandboxVariable]:
    """A page of a configuration's variables. Raises NotFound, or InvalidInput for an invalid page."""
    get(tx, organization, config_id)
    rows = paging.page(
        tx, _VARIABLES, sandbox_variables, page, {"of_config": config_id}, within={"sandbox_config_id": config_id}
    )
    return [_variable(row) for row in rows]


def environment(tx: Tx, organization: OrganizationId) -> dict[str, str]:
    """The environment variables of every tool of the organisation: those of its local configuration."""
    return {row.key: row.value for row in tx.execute(_ENVIRONMENT, {"of_organization": organization})}


def get_variable(tx: Tx, organization: OrganizationId, variable_id: SandboxVariableId) -> SandboxVariable:
    """Raises NotFound."""
    row = tx.execute(_VARIABLE, {"of_organization": organization, "of_variable": variable_id}).first()
    if row is None:
        raise NotFound("SandboxEnvironmentVariable", variable_id)
    return _variable(row)


def insert_variable(tx: Tx, variable: SandboxVariable) -> None:
    """Writes a variable. Raises NotFound for the configuration, and Conflict when its key is taken."""
    get(tx, variable.organization_id, variable.sandbox_config_id)
    _check_key(tx, variable)
    tx.execute(_INSERT_VARIABLE, {column.name: getattr(variable, column.name) for column in sandbox_variables.c})


def replace_variable(tx: Tx, variable: SandboxVariable) -> None:
    """Writes the changeable fields of an existing variable. Raises Conflict when its new key is taken."""
    _check_key(tx, variable)
    names = ("key", "value", "description", "updated_at", "last_updated_by_id")
    new = {f"new_{name}": getattr(variable, name) for name in names}
    tx.execute(_CHANGE_VARIABLE, new | {"of_variable": variable.id})


def delete_variable(tx: Tx, organization: OrganizationId, variable_id: SandboxVariableId) -> None:
    """Raises NotFound."""
    get_variable(tx, organization, variable_id)
    tx.execute(_DELETE_VARIABLE, {"of_variable": variable_id})


def _check_key(tx: Tx, variable: SandboxVariable) -> None:
    taken = tx.execute(_KEYED, {"of_config": variable.sandbox_config_id, "of_key": variable.key}).first()
    if taken is not None and taken.id != variable.id:
        raise Conflict(f"the sandbox already has a variable '{variable.key[:80]}'; update that one")
