"""Agents that are being imported: written piece by piece, and invisible until one small transaction publishes them.

Until then such an agent is stored as one that was deleted (see `removal`): it has no organization, and its rows count
for the one it will have. So nobody finds it, and what a crash leaves behind is deleted like every other deleted agent.
"""

from dataclasses import replace

import sqlalchemy as sa

from kelpie.core.agents.agent import Agent
from kelpie.core.errors import Conflict
from kelpie.core.ids import AgentId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.tables import agents, removed_agents
from kelpie.world.database import Tx

_REMEMBER = sa.insert(removed_agents)
_FORGET = sa.delete(removed_agents).where(removed_agents.c.agent_id == sa.bindparam("of_agent"))
_PUBLISH = (
    sa.update(agents)
    .where(agents.c.id == sa.bindparam("of_agent"), agents.c.organization_id == "")
    .values(organization_id=sa.bindparam("new_organization"))
)


def stage(tx: Tx, agent: Agent, now: Micros) -> None:
    """Writes a new agent that nobody can find yet."""
    agent_rows.create(tx, replace(agent, organization_id=OrganizationId("")))
    tx.execute(_REMEMBER, {"agent_id": agent.id, "organization_id": agent.organization_id, "removed_at": now})


def publish(tx: Tx, agent_id: AgentId, organization: OrganizationId) -> None:
    """Gives a staged agent to its organization. Raises Conflict when it was cleaned up meanwhile."""
    gone = tx.execute(_FORGET, {"of_agent": agent_id}).rowcount != 1
    if gone or tx.execute(_PUBLISH, {"of_agent": agent_id, "new_organization": organization}).rowcount != 1:
        raise Conflict("The request was interrupted and nothing of it was stored. Send it again.")
