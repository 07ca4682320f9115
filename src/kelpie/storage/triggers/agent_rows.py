"""Rows of which an agent can have several and which go with it: schedules and webhooks are found and listed alike."""

from typing import Any

import sqlalchemy as sa

from kelpie.core.errors import NotFound
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.paging import Page
from kelpie.storage.accounts.row_ownership import of_present_agent
from kelpie.storage.rows.paging import Paging
from kelpie.world.database import Tx


class AgentRows:
    """The statements of one table, which has the columns `id`, `organization_id`, `agent_id` and `created_at`."""

    def __init__(self, table: sa.Table, noun: str) -> None:
        """`noun` names a row in errors."""
        column, self._noun = table.c, noun
        present = of_present_agent(column.agent_id)
        self._one = sa.select(table).where(column.id == sa.bindparam("of_row"), present)
        self._locked = self._one.with_for_update()
        self._of_all = sa.select(table).where(column.organization_id == sa.bindparam("of_organization"), present)
        self._of_agent = self._of_all.where(column.agent_id == sa.bindparam("of_agent"))
        self._count = sa.select(sa.func.count()).where(column.agent_id == sa.bindparam("of_agent"))
        self._delete = sa.delete(table).where(column.id == sa.bindparam("of_row"))
        self._pages = Paging(table, "created_at")

    def find(self, tx: Tx, row_id: str, *, lock: bool = False) -> sa.Row[Any] | None:
        """A row of any organization; None if it was deleted."""
        return tx.execute(self._locked if lock else self._one, {"of_row": row_id}).first()

    def get(
        self, tx: Tx, organization: OrganizationId, agent_id: AgentId | None, row_id: str, *, lock: bool = False
    ) -> sa.Row[Any]:
        """A row of this agent, or of any. Raises NotFound."""
        row = self.find(tx, row_id, lock=lock)
        if row is None or row.organization_id != organization or agent_id not in (None, row.agent_id):
            raise NotFound(self._noun, row_id[:80])
        return row

    def page(self, tx: Tx, organization: OrganizationId, agent_id: AgentId | None, wanted: Page) -> list[sa.Row[Any]]:
        """Rows of an agent, or of all agents of the organization."""
        bound, within = {"of_organization": organization}, {"organization_id": str(organization)}
        if agent_id is None:
            return list(self._pages.rows(tx, self._of_all, wanted, bound, within=within))
        within["agent_id"] = agent_id
        return list(self._pages.rows(tx, self._of_agent, wanted, bound | {"of_agent": agent_id}, within=within))

    def count(self, tx: Tx, agent_id: AgentId) -> int:
        return int(tx.execute(self._count, {"of_agent": agent_id}).scalar_one())

    def delete(self, tx: Tx, row_id: str) -> None:
        tx.execute(self._delete, {"of_row": row_id})
