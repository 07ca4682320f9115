"""Agents as they are shown: the row with the requested relations, in a bounded number of statements."""

from collections.abc import Sequence

from kelpie.core.agents.agent import Agent, AgentView, Include
from kelpie.core.ids import AgentId
from kelpie.storage.agents import agents, groups, identities
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import approvals, contexts
from kelpie.storage.tools import tools
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring


def one(tx: Tx, agent_id: AgentId, include: Include, keyring: Keyring) -> AgentView:
    """Raises NotFound."""
    return many(tx, [agents.get(tx, agent_id)], include, keyring)[0]


def many(tx: Tx, found: Sequence[Agent], include: Include, keyring: Keyring) -> list[AgentView]:
    """Any number of agents: one statement per relation."""
    ids = [agent.id for agent in found]
    if not ids:
        return []
    seen_by = contexts.ids_of(tx, ids)
    blocks_of = block_attachments.of_agents(tx, ids) if include.blocks else {}
    tools_of = tools.of_agents(tx, ids) if include.tools else {}
    secrets_of = agent_secrets.of_agents(tx, ids, keyring) if include.secrets else {}
    identities_of = identities.of_agents.of_rows(tx, ids) if include.identities else {}
    groups_of = groups.led_by(tx, ids) if include.managed_group else {}
    requests_of = approvals.requests_of(tx, ids) if include.pending_approval else {}
    return [
        AgentView(
            agent=agent,
            message_ids=seen_by.get(agent.id, ()),
            blocks=tuple(blocks_of.get(agent.id, ())),
            tools=tuple(tools_of.get(agent.id, ())),
            secrets=secrets_of.get(agent.id, ()),
            identities=tuple(identities_of.get(agent.id, ())),
            managed_group=groups_of.get(agent.id),
            pending_approval=requests_of.get(agent.id),
        )
        for agent in found
    ]
