"""Opening of a new file for the agents that have its folder, some agents in each transaction.

The file itself remembers how far it has come, so that what a crash interrupts is continued.
"""

import sqlalchemy as sa

from kelpie.core.files.files import File
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros
from kelpie.storage.agents import agents
from kelpie.storage.files import files as file_rows
from kelpie.storage.files import views
from kelpie.storage.tables import agent_folders, files
from kelpie.world.database import Tx

_USERS = (
    sa.select(agent_folders.c.agent_id)
    .where(agent_folders.c.folder_id == sa.bindparam("of_folder"), agent_folders.c.agent_id > sa.bindparam("after"))
    .order_by(agent_folders.c.agent_id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_MARK = sa.update(files).where(files.c.id == sa.bindparam("of_file")).values(opened_after=sa.bindparam("reached"))
_UNOPENED = sa.select(files).where(files.c.opened_after.is_not(None), files.c.removed.is_(False)).limit(1)


def begin(tx: Tx, file: File, rows: int, now: Micros) -> tuple[AgentId, ...]:
    """Opens a file that was just completed for the first agents; returns them."""
    return _open_for(tx, file, "", rows, now)


def resume(tx: Tx, rows: int, now: Micros) -> tuple[AgentId, ...]:
    """Opens a file for the next agents; returns them."""
    row = tx.execute(_UNOPENED).first()
    return () if row is None else _open_for(tx, file_rows.from_row(row), row.opened_after, rows, now)


def is_needed(tx: Tx) -> bool:
    """Checks whether a file is still to be opened for some agents."""
    return tx.execute(_UNOPENED).first() is not None


def _open_for(tx: Tx, file: File, after: str, rows: int, now: Micros) -> tuple[AgentId, ...]:
    bound = {"of_folder": file.folder_id, "after": after, "most": rows}
    found = tuple(AgentId(each) for each in tx.execute(_USERS, bound).scalars())
    there = agents.existing(tx, found) if found else frozenset[str]()
    for agent_id in found:
        if agent_id in there:
            agent = agents.get(tx, agent_id)
            if not views.is_decided(tx, agent_id, file.id):
                views.open_file(tx, agent, file.id, now)
            views.evict(tx, agent, (file.id,))
            agents.bump(tx, agent_id)
    tx.execute(_MARK, {"of_file": file.id, "reached": found[-1] if len(found) == rows else None})
    return found
