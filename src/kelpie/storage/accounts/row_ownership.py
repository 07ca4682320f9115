"""Ownership of rows. An API checks here before it touches a row by its id: a row of another organisation does not exist
for the caller.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, bindparam, select

from kelpie.core.errors import NotFound
from kelpie.core.ids import OrganizationId
from kelpie.storage.tables import agents, blocks, messages, removed_agents, runs, steps, tools
from kelpie.world.database import Tx
from kelpie.world.statements import Prepared

Require = Callable[[Tx, OrganizationId, str], None]


def owned(statement: Select[tuple[str]], what: str) -> Require:
    """A check that the row of an id belongs to an organisation. `statement` finds its owner by `of_id`."""

    prepared = Prepared(statement)

    def require(tx: Tx, organization: OrganizationId, row_id: str) -> None:
        if prepared.scalar(tx, {"of_id": row_id}) != organization:
            raise NotFound(what, row_id)

    return require


def owner_of(table: Table) -> Select[tuple[str]]:
    """A statement that finds the owner of a row, in a table with an organisation column."""
    return select(table.c.organization_id).where(table.c.id == bindparam("of_id"))


def of_present_agent(agent_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """A condition for rows that name both their agent and their organisation: the rows of a deleted agent are deleted
    in pieces, and are shown to no client meanwhile."""
    return agent_id.not_in(select(removed_agents.c.agent_id))


agent = owned(owner_of(agents), "Agent")
block = owned(owner_of(blocks), "Block")
tool = owned(owner_of(tools), "Tool")
run = owned(owner_of(runs).where(of_present_agent(runs.c.agent_id)), "Run")
step = owned(owner_of(steps).where(of_present_agent(steps.c.agent_id)), "Step")
message = owned(
    select(agents.c.organization_id)
    .join(messages, messages.c.agent_id == agents.c.id)
    .where(messages.c.id == bindparam("of_id")),
    "Message",
)
