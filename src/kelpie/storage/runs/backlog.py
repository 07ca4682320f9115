"""The backlog: runs that wait or are under way, and since when the oldest of each waits."""

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from kelpie.core.conversations.runs import UNFINISHED, RunStatus
from kelpie.core.ids import OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.accounts.row_ownership import of_present_agent
from kelpie.storage.tables import runs
from kelpie.world.database import Tx


@dataclass(frozen=True, slots=True)
class Backlog:
    """Runs in one state: how many, and when the oldest was created."""

    status: RunStatus
    runs: int
    oldest_at: Micros


_ALL = (
    select(runs.c.status, func.count().label("runs"), func.min(runs.c.created_at).label("oldest_at"))
    .where(runs.c.status.in_([each.value for each in UNFINISHED]), of_present_agent(runs.c.agent_id))
    .group_by(runs.c.status)
    .order_by(runs.c.status)
)
_OWN = _ALL.where(runs.c.organization_id == bindparam("organization"))


def backlog(tx: Tx, organization: OrganizationId | None) -> list[Backlog]:
    """Of an organization, or of all of them."""
    found = tx.execute(_ALL) if organization is None else tx.execute(_OWN, {"organization": organization})
    return [Backlog(RunStatus(row.status), int(row.runs), int(row.oldest_at)) for row in found]
