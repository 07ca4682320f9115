"""Agents as they are shown: the row with the requested relations, in a bounded number of statements."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, exists, literal_column, select

from kelpie.core.agents.agent import Agent, AgentView, Include
from kelpie.core.ids import AgentId
from kelpie.core.paging import Page
from kelpie.storage.agents import agents, groups, identities
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import approvals, contexts
from kelpie.storage.files import attachments as file_attachments
from kelpie.storage.files import views as file_views
from kelpie.storage.rows.paging import known
from kelpie.storage.rows.row_bytes import row_bytes
from kelpie.storage.tables import agent_folders, agent_identities
from kelpie.storage.tables import agent_secrets as agent_secrets_table
from kelpie.storage.tables import agents as agents_table
from kelpie.storage.tables import approvals as approvals_table
from kelpie.storage.tables import groups as groups_table
from kelpie.storage.tools.attached_tools import AttachedTools
from kelpie.world.database import Tx
from kelpie.world.keyring import Keyring
from kelpie.world.statements import Prepared


def one(tx: Tx, agent_id: AgentId, include: Include, keyring: Keyring) -> AgentView:
    """The agent within a transaction that may write. Raises NotFound."""
    return _views(tx, [agents.get(tx, agent_id)], include, keyring, _tools(tx, [agent_id], include, writes=True))[0]


def page(tx: Tx, found: Sequence[Agent], include: Include, wanted: Page, keyring: Keyring) -> list[AgentView]:
    """The agents of a page, which ends early where they and their blocks and tools have too many bytes together."""
    if wanted.bytes_max is None or not (include.blocks or include.tools) or not found:
        return many(tx, found, include, keyring)
    ids = [agent.id for agent in found]
    blocks_of = block_attachments.sizes_of_agents(tx, ids) if include.blocks else {}
    tools = _tools(tx, ids, include, writes=False)
    tools_of = {} if tools is None else tools.sizes()
    backwards = known(tx, agents_table, wanted, {"organization_id": found[0].organization_id}).backwards
    near = list(reversed(found)) if backwards else list(found)  # the agents next to the cursor come first
    size, kept = 0, 0
    for agent in near:
        size += row_bytes((agent.system, agent.description, agent.metadata))
        size += blocks_of.get(agent.id, 0) + tools_of.get(agent.id, 0)
        if kept and size > wanted.bytes_max:
            break
        kept += 1
    shown = found[len(found) - kept :] if backwards else found[:kept]
    return _views(tx, shown, include, keyring, tools)


def many(tx: Tx, found: Sequence[Agent], include: Include, keyring: Keyring) -> list[AgentView]:
    """Any number of agents, within a transaction that only reads: one statement per relation."""
    ids = [agent.id for agent in found]
    return _views(tx, found, include, keyring, _tools(tx, ids, include, writes=False))


def _tools(tx: Tx, ids: Sequence[AgentId], include: Include, *, writes: bool) -> AttachedTools | None:
    return AttachedTools(tx, ids, writes=writes) if include.tools and ids else None


def _views(
    tx: Tx, found: Sequence[Agent], include: Include, keyring: Keyring, tools: AttachedTools | None
) -> list[AgentView]:
    ids = [agent.id for agent in found]
    if not ids:
        return []
    heads = _heads(tx, ids)
    blocks_of = block_attachments.of_agents(tx, ids) if include.blocks else {}
    tools_of = {} if tools is None else tools.of(ids)
    kept = _with(heads, "has_secrets") if include.secrets else []
    secrets_of = agent_secrets.of_agents(tx, kept, keyring) if kept else {}
    linked = _with(heads, "has_identities") if include.identities else []
    identities_of = identities.of_agents.of_rows(tx, linked) if linked else {}
    reading = _with(heads, "has_folders") if include.folders else []
    folders_of = file_attachments.of_agents(tx, reading) if reading else {}
    leading = _with(heads, "has_group") if include.managed_group else []
    groups_of = groups.led_by(tx, leading) if leading else {}
    waiting = _with(heads, "has_request") if include.pending_approval else []
    requests_of = approvals.requests_of(tx, waiting) if waiting else {}
    return [
        AgentView(
            agent=agent,
            message_ids=contexts.split_ids(heads[agent.id].context),
            blocks=tuple(blocks_of.get(agent.id, ())),
            tools=tools_of.get(agent.id, ()),
            secrets=secrets_of.get(agent.id, ()),
            identities=tuple(identities_of.get(agent.id, ())),
            folders=tuple(folders_of.get(agent.id, ())),
            files=file_views.shown(tx, agent) if len(found) == 1 and folders_of else (),
            managed_group=groups_of.get(agent.id),
            pending_approval=requests_of.get(agent.id),
        )
        for agent in found
    ]


# Few agents have any of these relations: to see that there are none costs less than a statement for each.
_HEADS = select(
    agents_table.c.id,
    contexts.joined_ids(literal_column("agents.id")).scalar_subquery().label("context"),
    exists().where(agent_secrets_table.c.agent_id == agents_table.c.id).label("has_secrets"),
    exists().where(agent_identities.c.agent_id == agents_table.c.id).label("has_identities"),
    exists().where(agent_folders.c.agent_id == agents_table.c.id).label("has_folders"),
    exists().where(groups_table.c.manager_agent_id == agents_table.c.id).label("has_group"),
    exists().where(approvals_table.c.agent_id == agents_table.c.id).label("has_request"),
)
_HEAD_OF_ONE = Prepared(_HEADS.where(agents_table.c.id == bindparam("of_agent")))
_HEADS_OF_MANY = _HEADS.where(agents_table.c.id.in_(bindparam("ids", expanding=True)))


def _heads(tx: Tx, ids: Sequence[AgentId]) -> dict[str, Any]:
    """The context of each agent, and which relations it has at all."""
    if len(ids) == 1:
        rows = _HEAD_OF_ONE.rows(tx, {"of_agent": ids[0], "of_conversation": ""})
    else:
        rows = tx.execute(_HEADS_OF_MANY, {"ids": list(ids), "of_conversation": ""})
    return {row.id: row for row in rows}


def _with(heads: Mapping[str, Any], relation: str) -> list[AgentId]:
    return [AgentId(agent_id) for agent_id, head in heads.items() if getattr(head, relation)]
