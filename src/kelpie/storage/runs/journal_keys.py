"""The keys of the journal: one row for each commit of a turn, which makes a commit happen once and findable.

Once a turn has ended and no commit of it can be in doubt any more, its keys are useless and are deleted.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.exc import IntegrityError

from kelpie.core.conversations.runs import UNFINISHED, JournalEntry, Run
from kelpie.core.errors import InvariantBroken
from kelpie.core.ids import AgentId, RunId
from kelpie.core.time import Micros
from kelpie.storage.agents.ownership_fence import Claim
from kelpie.storage.rows.inserts import Insert
from kelpie.storage.tables import journal, runs
from kelpie.world.database import Tx

_INSERT = Insert(journal)
_ENTRY = select(journal.c.epoch).where(
    journal.c.agent_id == bindparam("of_agent"),
    journal.c.turn_id == bindparam("of_turn"),
    journal.c.step == bindparam("of_step"),
)


def has(tx: Tx, agent_id: AgentId, turn_id: RunId, step: int) -> bool:
    """Checks whether this commit of the turn is stored: this resolves a commit in doubt."""
    found = tx.execute(_ENTRY, {"of_agent": agent_id, "of_turn": turn_id, "of_step": step}).scalar()
    return found is not None


def add(tx: Tx, claim: Claim, turn_id: RunId, step: int, kind: str, at: Micros) -> None:
    """Takes the key of one commit of a turn. Raises InvariantBroken when it was taken before."""
    try:
        _INSERT.run(
            tx,
            [
                {
                    "agent_id": claim.agent_id,
                    "turn_id": turn_id,
                    "step": step,
                    "kind": kind,
                    "epoch": claim.epoch,
                    "created_at": at,
                }
            ],
        )
    except IntegrityError as error:
        raise InvariantBroken(f"step {step} of {turn_id} was already committed") from error


_LAST_ENTRY = (
    select(journal.c.step)
    .where(journal.c.agent_id == bindparam("of_agent"), journal.c.turn_id == bindparam("of_turn"))
    .order_by(journal.c.step.desc())
    .limit(1)
)


def length(tx: Tx, agent_id: AgentId, turn_id: RunId) -> int:
    """Number of commits of the turn."""
    last = tx.execute(_LAST_ENTRY, {"of_agent": agent_id, "of_turn": turn_id}).scalar()
    return 0 if last is None else int(last) + 1


_ENTRIES = (
    select(journal)
    .where(journal.c.agent_id == bindparam("of_agent"), journal.c.turn_id == bindparam("of_turn"))
    .order_by(journal.c.step)
    .limit(bindparam("most"))
)
_LATEST = (
    select(journal.c.turn_id, func.max(journal.c.created_at).label("at"))
    .where(
        journal.c.agent_id.in_(bindparam("of_agents", expanding=True)),
        journal.c.turn_id.in_(bindparam("of_turns", expanding=True)),
    )
    .group_by(journal.c.turn_id)
)


def entries(tx: Tx, agent_id: AgentId, turn_id: RunId, most: int) -> list[JournalEntry]:
    """The commits of a turn, the first first; none of a turn that ended long ago."""
    rows = tx.execute(_ENTRIES, {"of_agent": agent_id, "of_turn": turn_id, "most": most})
    return [JournalEntry(row.step, row.kind, row.created_at) for row in rows]


def latest(tx: Tx, found: Sequence[Run]) -> dict[str, Micros]:
    """The time of the last commit of each of these runs that has one."""
    if not found:
        return {}
    names = {"of_agents": sorted({run.agent_id for run in found}), "of_turns": [run.id for run in found]}
    return {row.turn_id: row.at for row in tx.execute(_LATEST, names)}


# There is no index on the time: every turn would pay for it, and old rows are at the beginning of the table.
_OLD = (
    select(journal.c.agent_id, journal.c.turn_id)
    .join(runs, runs.c.id == journal.c.turn_id, isouter=True)
    .where(
        journal.c.step == 0,
        journal.c.created_at < bindparam("before"),
        runs.c.id.is_(None)
        | (runs.c.status.not_in([status.value for status in UNFINISHED]) & (runs.c.completed_at < bindparam("before"))),
    )
    .limit(bindparam("most"))
)
_REMOVE = delete(journal).where(journal.c.agent_id == bindparam("of_agent"), journal.c.turn_id == bindparam("of_turn"))


def old_turns(tx: Tx, before: Micros, most: int) -> list[tuple[str, str]]:
    """Agent and turn of some turns that ended before then, or whose run is gone, and that still have keys."""
    return [(row.agent_id, row.turn_id) for row in tx.execute(_OLD, {"before": before, "most": most})]


def remove(tx: Tx, turns: Sequence[tuple[str, str]]) -> None:
    """Deletes all keys of these turns."""
    if turns:
        tx.execute(_REMOVE, [{"of_agent": agent_id, "of_turn": turn_id} for agent_id, turn_id in turns])
