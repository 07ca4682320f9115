"""Agents as they are shown: the row with the requested relations, in a bounded number of statements."""

from collections.abc import Sequence

from kelpie.core.agents.agent import Agent, AgentView, Include
from kelpie.core.ids import AgentId
from kelpie.core.paging import Page
from kelpie.storage.agents import agents, groups, identities
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import approvals, contexts
from kelpie.storage.rows.row_bytes import row_bytes
from kelpie.storage.tools import tools
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring

_BATCH_MAX = 64  # agents whose relations are read together
_RELATED_BYTES = 1024  # of the other fields of an agent, a block or a tool
_ID_BYTES = 48


def one(tx: Tx, agent_id: AgentId, include: Include, keyring: Keyring) -> AgentView:
    """Raises NotFound."""
    return many(tx, [agents.get(tx, agent_id)], include, keyring)[0]


def page(tx: Tx, found: Sequence[Agent], include: Include, wanted: Page, keyring: Keyring) -> list[AgentView]:
    """The agents of a page, which ends early where they and their relations have too many bytes together."""
    if wanted.bytes_max is None or not (include.blocks or include.tools):
        return many(tx, found, include, keyring)
    near = list(reversed(found)) if wanted.backwards else list(found)  # the agents next to the cursor come first
    kept: list[AgentView] = []
    size, batch = 0, 1  # a few more at a time, as long as they are small
    while near:
        for view in many(tx, near[:batch], include, keyring):
            size += _view_bytes(view)
            if kept and size > wanted.bytes_max:
                near = []
                break
            kept.append(view)
        near, batch = near[batch:], min(2 * batch, _BATCH_MAX)
    return list(reversed(kept)) if wanted.backwards else kept


def _view_bytes(view: AgentView) -> int:
    agent, related = view.agent, len(view.blocks) + len(view.tools)
    size = row_bytes((agent.system, agent.description, agent.metadata)) + _ID_BYTES * len(view.message_ids)
    size += sum(row_bytes((block.value, block.description, block.metadata)) for block in view.blocks)
    size += sum(row_bytes((tool.source_code, tool.json_schema, tool.args_json_schema)) for tool in view.tools)
    return size + _RELATED_BYTES * (1 + related)


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
