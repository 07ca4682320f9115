"""Ids of an organization by their first characters, so that people need not type a whole one."""

from typing import Any

import sqlalchemy as sa

from kelpie.core.ids import OrganizationId
from kelpie.storage.tables import (
    agents,
    archives,
    blocks,
    conversations,
    firings,
    groups,
    hooks,
    identities,
    jobs,
    messages,
    passages,
    projects,
    runs,
    schedules,
    steps,
    tools,
)
from kelpie.world.database import Tx

_AFTER_HEX = "g"  # sorts after every character of an id


def _within(table: sa.Table, name: Any = None, *where: sa.ColumnElement[bool]) -> sa.Executable:
    """The ids of a table in a range of ids; a range, because it uses the index of the primary key in every dialect."""
    shown = sa.null() if name is None else name
    query = sa.select(table.c.id, shown.label("name")).where(
        table.c.id >= sa.bindparam("low"), table.c.id < sa.bindparam("high"), *where
    )
    if "organization_id" in table.c:
        query = query.where(table.c.organization_id == sa.bindparam("of_organization"))
    else:
        owned = sa.and_(agents.c.id == table.c.agent_id, agents.c.organization_id == sa.bindparam("of_organization"))
        query = query.join(agents, owned)
    return query.order_by(table.c.id).limit(sa.bindparam("most"))


_STATEMENTS = {
    "agent": _within(agents, agents.c.name),
    "archive": _within(archives, archives.c.name, archives.c.removed.is_(False)),
    "block": _within(blocks, blocks.c.label),
    "conv": _within(conversations, conversations.c.summary, conversations.c.deleted_at.is_(None)),
    "firing": _within(firings),
    "group": _within(groups),
    "hook": _within(hooks, hooks.c.name),
    "identity": _within(identities, identities.c.name),
    "job": _within(jobs),
    "message": _within(messages),
    "passage": _within(passages),
    "project": _within(projects, projects.c.name),
    "run": _within(runs),
    "schedule": _within(schedules, schedules.c.name),
    "step": _within(steps),
    "tool": _within(tools, tools.c.name),
}
KINDS = tuple(_STATEMENTS)


def select(tx: Tx, organization: OrganizationId, kind: str, start: str, limit: int) -> list[tuple[str, str | None]]:
    """Ids of a kind that begin with `start`, in order, with the name of each where the kind has names."""
    low = f"{kind}-{start}"
    bound = {"of_organization": organization, "low": low, "high": low + _AFTER_HEX, "most": limit}
    return [(row.id, row.name) for row in tx.execute(_STATEMENTS[kind], bound)]
