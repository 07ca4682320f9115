"""Items of one deployment of a template: rows of several kinds that have its id."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kelpie.core.agents.deployments import DeployedItem
from kelpie.core.ids import OrganizationId
from kelpie.storage.tables import agents, blocks, groups
from kelpie.world.database import Tx

EACH_MAX = 10_000  # of a kind, at once

_NONE = sa.literal(None, sa.Text)


def _of(
    table: sa.Table, name: sa.ColumnElement[Any], entity: sa.ColumnElement[Any]
) -> sa.Select[Any, Any, Any, Any, Any]:
    c = table.c
    return (
        sa.select(c.id, name.label("name"), c.description, entity.label("entity_id"), c.project_id)
        .where(c.organization_id == sa.bindparam("of_organization"), c.deployment_id == sa.bindparam("of_deployment"))
        .order_by(c.created_at, c.id)
        .limit(EACH_MAX)
    )


_STATEMENTS = {
    "block": _of(blocks, sa.func.coalesce(blocks.c.template_name, blocks.c.label), blocks.c.entity_id),
    "agent": _of(agents, agents.c.name, agents.c.entity_id),
    "group": _of(groups, _NONE, _NONE),
}


def select(tx: Tx, organization: OrganizationId, deployment_id: str, kinds: Sequence[str]) -> list[DeployedItem]:
    """The items of the deployment, kind by kind, the oldest first."""
    given = {"of_organization": organization, "of_deployment": deployment_id}
    return [
        DeployedItem(row.id, kind, row.name, row.description, row.entity_id, row.project_id)
        for kind in kinds
        for row in tx.execute(_STATEMENTS[kind], given)
    ]
