"""Client ids of messages and the runs that answer them: by these a repeated send is recognised."""

from collections.abc import Iterable

from sqlalchemy import bindparam, func, insert, select

from kelpie.core.ids import AgentId, RunId
from kelpie.storage.tables import run_otids, runs
from kelpie.world.database import Tx

_INSERT = insert(run_otids)
_NEWEST = (
    select(run_otids.c.run_id)
    .join(runs, runs.c.id == run_otids.c.run_id)
    .where(
        run_otids.c.agent_id == bindparam("of_agent"),
        run_otids.c.otid == bindparam("of_otid"),
        func.coalesce(runs.c.conversation_id, "") == bindparam("of_conversation"),
    )
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    .limit(bindparam("most"))
)


def add(tx: Tx, agent_id: AgentId, run_id: RunId, otids: Iterable[str]) -> None:
    """Records the client ids of a run's messages."""
    new = [{"agent_id": agent_id, "otid": otid, "run_id": run_id} for otid in dict.fromkeys(otids)]
    if new:
        tx.execute(_INSERT, new)


def newest(tx: Tx, agent_id: AgentId, conversation: str, otid: str, most: int) -> list[RunId]:
    """The runs of a conversation that have a message with this id, newest first, up to a limit."""
    wanted = {"of_agent": agent_id, "of_otid": otid, "of_conversation": conversation, "most": most}
    return [RunId(run_id) for run_id in tx.execute(_NEWEST, wanted).scalars()]
