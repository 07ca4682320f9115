"""Client ids of messages and the runs that answer them: by these a repeated send is recognised."""

from collections.abc import Iterable

from sqlalchemy import bindparam, insert, select

from kelpie.core.ids import AgentId, RunId
from kelpie.storage.tables import run_otids, runs
from kelpie.world.database import Tx

_INSERT = insert(run_otids)
_RUNS = (
    select(run_otids.c.run_id)
    .join(runs, runs.c.id == run_otids.c.run_id)
    .where(run_otids.c.agent_id == bindparam("of_agent"), run_otids.c.otid == bindparam("of_otid"))
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    .limit(1)
)


def add(tx: Tx, agent_id: AgentId, run_id: RunId, otids: Iterable[str]) -> None:
    """Records the client ids of a run's messages."""
    new = [{"agent_id": agent_id, "otid": otid, "run_id": run_id} for otid in dict.fromkeys(otids)]
    if new:
        tx.execute(_INSERT, new)


def latest(tx: Tx, agent_id: AgentId, otid: str) -> RunId | None:
    """The newest run that has a message with this id."""
    found = tx.execute(_RUNS, {"of_agent": agent_id, "of_otid": otid}).scalar()
    return None if found is None else RunId(found)
