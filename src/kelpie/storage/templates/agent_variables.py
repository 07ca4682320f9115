"""Memory variables of agents that were made from a template, as one row for each agent."""

from collections.abc import Mapping

import orjson
import sqlalchemy as sa

from kelpie.core.ids import AgentId
from kelpie.storage.tables import agent_variables
from kelpie.world.database import Tx

_INSERT = sa.insert(agent_variables)
_ONE = sa.select(agent_variables.c.memory_variables).where(agent_variables.c.agent_id == sa.bindparam("of_agent"))


def write(tx: Tx, agent_id: AgentId, values: Mapping[str, str]) -> None:
    """Stores the variables of a new agent."""
    tx.execute(_INSERT, {"agent_id": agent_id, "memory_variables": orjson.dumps(dict(values)).decode()})


def read(tx: Tx, agent_id: AgentId) -> dict[str, str]:
    """The variables of an agent; none for one that no template made."""
    found = tx.execute(_ONE, {"of_agent": agent_id}).scalar()
    return {} if found is None else orjson.loads(found)
