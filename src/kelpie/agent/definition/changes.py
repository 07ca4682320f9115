"""Changing an agent: what a partial update means for its row and for what hangs on it."""

from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.agent.definition import compaction_settings, creation
from kelpie.core.access.identities import Identity
from kelpie.core.agents.agent import Agent, ModelChoice, Secret
from kelpie.core.dates.time_zones import check_timezone
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import BlockId, IdentityId, MessageId, OrganizationId, ToolId, UserId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool, ToolQuery
from kelpie.llm.provider.interface import ModelInfo
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents, identities
from kelpie.storage.agents import secrets as agent_secrets
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.conversations import contexts, messages
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.files import attachments as folder_attachments
from kelpie.storage.files import views
from kelpie.storage.tools import tools
from kelpie.tools.builtin.pause import require_heartbeats
from kelpie.tools.calls import approval_rule
from kelpie.world.database import Tx

# Fields that go into the row as they are given.
_PLAIN = frozenset(
    {
        "system", "description", "metadata", "tool_rules", "tags", "hidden", "project_id", "template_id",
        "base_template_id", "response_format", "message_buffer_autoclear", "enable_sleeptime", "max_files_open",
        "per_file_view_window_char_limit", "embedding", "embedding_chunk_size", "last_run_completion",
        "last_run_duration_ms", "last_stop_reason", "budget", "facts", "permits", "quota",
    }
)  # fmt: skip
MODEL_FIELDS = (
    "model", "context_window_limit", "max_tokens", "model_settings", "parallel_tool_calls", "reasoning",
    "max_reasoning_tokens", "inner_thoughts",
)  # fmt: skip
_ALSO_SETTINGS = {"max_tokens": "max_output_tokens", "parallel_tool_calls": "parallel_tool_calls"}
_RELATIONS = frozenset({"tool_ids", "block_ids", "identity_ids", "folder_ids", "secrets", "message_ids"})
_CHECKED = {"name": creation.check_name, "timezone": check_timezone}


def changes_model(changes: Mapping[str, Any]) -> bool:
    return any(name in changes for name in MODEL_FIELDS)


def new_model(
    agent: Agent,
    info: ModelInfo,
    changes: Mapping[str, Any],
    window_max: int = creation.CONTEXT_WINDOW_DEFAULT_MAX,
) -> ModelChoice:
    """The model choice after a change: what is given anew, over what the agent had, over what the model offers."""
    old = agent.model
    same = "model" not in changes  # naming a model, even the same one, starts from what it offers
    kept: dict[str, Any] = {
        "context_window_limit": old.context_window if same else None,
        "max_tokens": old.max_tokens if same else None,
        "parallel_tool_calls": old.parallel_tool_calls,
        "model_settings": _without_overridden(old.settings, changes) if same else None,
        "inner_thoughts": old.inner_thoughts,
    }
    given = {name: changes[name] for name in MODEL_FIELDS if name in changes and name != "model"}
    if given.get("model_settings") is not None:
        given["model_settings"] = {**(kept["model_settings"] or {}), **given["model_settings"]}
    return creation.choose_model(info, {**kept, **given}, window_max)


def _without_overridden(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The stored settings, updated by changes that come as fields of their own: settings take precedence."""
    kept = dict(settings)
    for name, setting in _ALSO_SETTINGS.items():
        if name in changes and kept.pop(setting, None) is not None and changes[name] is not None:
            kept[setting] = changes[name]
    return kept


def row_changes(changes: Mapping[str, Any], model: ModelChoice | None, agent: Agent, user: UserId) -> dict[str, Any]:
    """The columns a change sets. Raises InvalidInput for a value that cannot be."""
    unknown = [
        name for name in changes if name not in _PLAIN | _RELATIONS | {*MODEL_FIELDS, *_CHECKED, "compaction_settings"}
    ]
    if unknown:
        raise InvalidInput(unknown[0], "this field cannot be changed")
    columns: dict[str, Any] = {name: changes[name] for name in changes if name in _PLAIN}
    columns |= {name: check(changes[name]) for name, check in _CHECKED.items() if changes.get(name) is not None}
    if columns.get("tool_rules") is not None:
        columns["tool_rules"] = creation.distinct_rules(columns["tool_rules"])
    stored = agent.compaction_settings or compaction_settings.made(None, agent.model.handle)
    compaction = dict(stored)
    if model is not None:
        columns["model"] = model
        compaction = compaction_settings.moved(stored, agent.model.handle, model.handle)
    if (given := changes.get("compaction_settings")) is not None:
        compaction = compaction_settings.changed(compaction, given)
    if compaction != (agent.compaction_settings or {}):
        columns["compaction_settings"] = compaction
    if creation.SUBAGENT_TAG in columns.get("tags", ()):
        columns["hidden"] = True
    return columns | {"last_updated_by_id": user}


def apply_relations(
    tx: Tx, agent: Agent, changes: Mapping[str, Any], secrets: Sequence[Secret], sealing: Sealing, now: Micros
) -> None:
    """Replaces the sets that hang on the agent. Raises NotFound, Conflict, InvalidInput."""
    if (ids := changes.get("tool_ids")) is not None:
        chosen, before = find_tools(tx, agent.organization_id, (), ids), tools.of_agent(tx, agent.id)
        require_heartbeats("tool_ids", agent.agent_type, chosen)
        tools.replace_for_agent(tx, agent.id, ids)
        known = {tool.id for tool in before}
        approval_rule.switch_on_by_default(tx, agent.id, (tool for tool in chosen if tool.id not in known), now)
    if (ids := changes.get("block_ids")) is not None:
        for block_id in ids:
            row_ownership.block(tx, agent.organization_id, BlockId(block_id))
        block_attachments.replace_for_agent(tx, agent.id, ids)
    if (ids := changes.get("identity_ids")) is not None:
        link_identities(tx, agent, ids)
    if (ids := changes.get("folder_ids")) is not None:
        folder_attachments.replace(tx, agent.organization_id, agent.id, ids, now)
    if changes.get("max_files_open") is not None:
        views.evict(tx, agents.get(tx, agent.id))
    if changes.get("secrets") is not None:
        agent_secrets.replace(tx, agent.id, secrets, sealing)
    if (ids := changes.get("message_ids")) is not None:
        _set_context(tx, agent, ids)


def link_identities(tx: Tx, agent: Agent, ids: Sequence[IdentityId]) -> tuple[Identity, ...]:
    """Makes these the identities of the agent and no others. Raises Conflict for one that does not exist."""
    identities.require_all(tx, agent.organization_id, ids)
    identities.of_agents.replace(tx, agent.id, ids)
    return tuple(identities.of_agents.of_rows(tx, [agent.id]).get(agent.id, ()))


def _set_context(tx: Tx, agent: Agent, ids: Sequence[MessageId]) -> None:
    found = {m.id for m in messages.get_many(tx, ids) if m.agent_id == agent.id}
    missing = next((i for i in ids if i not in found), None)
    if missing is not None:
        raise InvalidInput("message_ids", f"{missing} is not a message of this agent")
    contexts.replace(tx, agent.id, ids)


def find_tools(tx: Tx, organization: OrganizationId, names: Sequence[str], ids: Sequence[ToolId]) -> tuple[Tool, ...]:
    """The tools asked for by name and by id, each once. Raises InvalidInput naming what does not exist."""
    by_name = tools.by_names(tx, organization, names) if names else {}
    missing = [name for name in names if name not in by_name]
    if missing:
        # Clients match "Tools not found by name"; they then add the base tools and try again.
        raise InvalidInput("tools", f"Tools not found by name: {', '.join(missing)}. Create them first.")
    query = ToolQuery(page=Page(limit=None), tool_ids=tuple(ids))
    by_id = {tool.id: tool for tool in tools.select(tx, organization, query)} if ids else {}
    unknown = [i for i in ids if i not in by_id]
    if unknown:
        raise InvalidInput("tool_ids", f"Tools not found by id: {', '.join(unknown)}. Create them first.")
    found = {tool.id: tool for tool in (*(by_name[n] for n in names), *(by_id[i] for i in ids))}
    return tuple(found.values())
