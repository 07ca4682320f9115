"""An agent as Letta's clients see it. Every key is always there; a relation that was not loaded is an empty list.

`llm_config`, `embedding_config` and `model_settings` are three old and new ways to name the model; they are made from
the one stored choice. `kelpie_status` and `paused_until` are Kelpie's own: the state of the agent's activation, and the
end of its pause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.agent.prompt.agent_types import spec_for
from kelpie.core.agents.agent import ActivationStatus, Agent, AgentType, AgentView, ModelChoice, Secret, ToolRule
from kelpie.core.encoded_json import EncodedJson
from kelpie.core.tools.tools import Tool
from kelpie.search.cache import SizedCache
from kelpie.server.http.times import timestamp
from kelpie.server.letta.agents.budget_body import budget_shape
from kelpie.server.letta.agents.fact_settings_body import fact_settings_shape
from kelpie.server.letta.agents.permission_body import limits_shape, permits_shape
from kelpie.server.letta.blocks.shape import block_shape
from kelpie.server.letta.folders.shape import file_block_shape, source_shape
from kelpie.server.letta.groups.shape import group_shape
from kelpie.server.letta.identities.shape import identity_shape
from kelpie.server.letta.messages.shape import request_shape
from kelpie.server.letta.models.shape import EmbeddingFacts, ModelFacts, embedding_config, endpoint_type
from kelpie.server.letta.tools.shape import tool_shape

EncodedTools = SizedCache[tuple[str, int, int], EncodedJson]


@dataclass(frozen=True, slots=True)
class Facts:
    """Known facts about models by their handles, without asking a provider."""

    model: Callable[[str], ModelFacts | None]
    embeddings: Mapping[str, EmbeddingFacts]
    encoded: EncodedTools | None = None  # tools that were shown before


TEMPERATURE_DEFAULT = 1.0

# Fields that clients expect of a provider; of OpenAI's models, those that do not reason have an effort all the same.
_OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "openai": {"reasoning": {"reasoning_effort": "minimal"}},
    "anthropic": {"thinking": {"type": "disabled"}, "verbosity": None, "effort": None},
}
_RULE_DEFAULTS: dict[str, dict[str, Any]] = {
    "run_first": {"args": None},
    "constrain_child_tools": {"child_arg_nodes": None},
    "conditional": {"default_child": None, "require_output_mapping": False},
}


def agent_shape(view: AgentView, known: Facts) -> dict[str, Any]:
    agent = view.agent
    facts = known.model(agent.model.handle)
    blocks = [block_shape(block) for block in view.blocks]
    group = None if view.managed_group is None else group_shape(view.managed_group)
    secrets = [_secret_shape(secret, agent) for secret in view.secrets]
    return {
        "created_by_id": agent.created_by_id,
        "last_updated_by_id": agent.last_updated_by_id,
        "created_at": timestamp(agent.created_at),
        "updated_at": timestamp(agent.updated_at),
        "id": agent.id,
        "name": agent.name,
        "tool_rules": [rule_shape(rule) for rule in agent.tool_rules],
        "message_ids": list(view.message_ids),
        "system": agent.system,
        "agent_type": agent.agent_type,
        "llm_config": llm_config(agent, facts),
        "embedding_config": embedding_config(agent.embedding, agent.embedding_chunk_size, known.embeddings),
        "model": agent.model.handle,
        "embedding": agent.embedding,
        "model_settings": model_settings(agent.model, facts),
        "compaction_settings": _plain(agent.compaction_settings),
        "response_format": _plain(agent.response_format),
        "description": agent.description,
        "metadata": _plain(agent.metadata),
        "memory": memory_shape(agent.agent_type, blocks, [file_block_shape(agent, each) for each in view.files]),
        "blocks": blocks,
        "tools": [_tool(tool, known.encoded) for tool in view.tools],
        "sources": [source_shape(folder, known.embeddings) for folder in view.folders],
        "tags": list(agent.tags),
        "tool_exec_environment_variables": secrets,
        "secrets": secrets,
        "project_id": agent.project_id,
        "template_id": agent.template_id,
        "base_template_id": agent.base_template_id,
        "deployment_id": agent.deployment_id,
        "entity_id": agent.entity_id,
        "identity_ids": [identity.id for identity in view.identities],
        "identities": [identity_shape(identity) for identity in view.identities],
        "pending_approval": request_shape(view.pending_approval) if view.pending_approval else None,
        "message_buffer_autoclear": agent.message_buffer_autoclear,
        "enable_sleeptime": agent.enable_sleeptime,
        "multi_agent_group": group,
        "managed_group": group,
        "last_run_completion": timestamp(agent.last_run_completion),
        "last_run_duration_ms": agent.last_run_duration_ms,
        "last_stop_reason": agent.last_stop_reason,
        "timezone": agent.timezone,
        "max_files_open": agent.max_files_open,
        "per_file_view_window_char_limit": agent.per_file_view_window_char_limit,
        "hidden": agent.hidden,
        "kelpie_status": status_shape(view.status),
        "kelpie_budget": budget_shape(agent.budget),
        "kelpie_permissions": permits_shape(agent.permits),
        "kelpie_limits": limits_shape(agent.quota),
        "kelpie_facts": fact_settings_shape(agent.facts),
        "paused_until": timestamp(view.paused_until),
    }


def _tool(tool: Tool, encoded: EncodedTools | None) -> Any:
    """Agents share most of their tools, so most are encoded already."""
    if encoded is None:
        return tool_shape(tool)
    key = (tool.id, tool.version, tool.updated_at)
    found = encoded.get(key)
    if found is None:
        found = EncodedJson(orjson.dumps(tool_shape(tool)))
        encoded.put(key, found)
    return orjson.Fragment(found.text)


def status_shape(status: ActivationStatus) -> dict[str, Any]:
    return {
        "state": status.state,
        "error": status.error,
        "failed_at": timestamp(status.failed_at),
        "attempts": status.attempts,
        "retry_at": timestamp(status.retry_at),
    }


def memory_shape(
    agent_type: AgentType, blocks: list[dict[str, Any]], file_blocks: list[dict[str, Any]]
) -> dict[str, Any]:
    """The memory object that older clients read."""
    return {
        "agent_type": agent_type,
        "git_enabled": False,
        "blocks": blocks,
        "file_blocks": file_blocks,
        "prompt_template": "",
    }


def rule_shape(rule: ToolRule) -> dict[str, Any]:
    head = {"tool_name": rule.tool_name, "type": rule.type, "prompt_template": None}
    return head | _RULE_DEFAULTS.get(rule.type, {}) | dict(rule.options)


def llm_config(agent: Agent, facts: ModelFacts | None) -> dict[str, Any]:
    """The deprecated description of the model; clients still read it."""
    choice = agent.model
    provider, _, name = choice.handle.partition("/")
    kind = endpoint_type(facts, provider)
    settings = _requested_settings(choice)
    inner_thoughts = spec_for(agent).inner_thoughts
    thinking = settings.get("thinking") or {}
    return {
        "model": facts.name if facts else name,
        "display_name": None,
        "model_endpoint_type": kind,
        "model_endpoint": facts.endpoint if facts else None,
        "provider_name": provider,
        "provider_category": facts.category if facts else "base",
        "model_wrapper": None,
        "context_window": choice.context_window,
        "put_inner_thoughts_in_kwargs": inner_thoughts,
        "handle": choice.handle,
        "temperature": _temperature(choice, facts),
        "max_tokens": _max_tokens(choice, facts),
        "enable_reasoner": inner_thoughts or choice.thinks or bool(facts and facts.reasoning and kind == "openai"),
        "reasoning_effort": (settings.get("reasoning") or {}).get("reasoning_effort"),
        "max_reasoning_tokens": thinking.get("budget_tokens", 0) if choice.thinks else 0,
        "effort": settings.get("effort"),
        "frequency_penalty": settings.get("frequency_penalty"),
        "compatibility_type": None,
        "verbosity": settings.get("verbosity"),
        "tier": None,
        "parallel_tool_calls": choice.parallel_tool_calls,
        "response_format": settings.get("response_format"),
        "strict": settings.get("strict", False),
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
    }


def model_settings(choice: ModelChoice, facts: ModelFacts | None) -> dict[str, Any]:
    """The settings with their defaults, as the newer clients read them."""
    kind = endpoint_type(facts, choice.handle.partition("/")[0])
    shown: dict[str, Any] = {
        "parallel_tool_calls": True,
        "response_format": None,
        "strict": False,
        **_OWN_SETTINGS.get(kind, {}),
        **({"reasoning": None} if kind == "openai" and facts and facts.reasoning else {}),
        **_requested_settings(choice),
    }
    known = {"max_output_tokens": _max_tokens(choice, facts), "temperature": _temperature(choice, facts)}
    return shown | known | {"provider_type": kind}


def _requested_settings(choice: ModelChoice) -> dict[str, Any]:
    """The model's settings as they are sent to it."""
    return {key: value for key, value in choice.settings.items() if value is not None}


def _temperature(choice: ModelChoice, facts: ModelFacts | None) -> float | None:
    """The temperature that is sent; None when the server of the model decides."""
    if choice.temperature is None and facts is not None and facts.temperature is None:
        return None
    return TEMPERATURE_DEFAULT if choice.temperature is None else choice.temperature


def _max_tokens(choice: ModelChoice, facts: ModelFacts | None) -> int | None:
    if choice.max_tokens is not None:
        return choice.max_tokens
    return facts.max_tokens if facts else None


def _secret_shape(secret: Secret, agent: Agent) -> dict[str, Any]:
    return {
        "created_by_id": None,
        "last_updated_by_id": None,
        "created_at": timestamp(secret.created_at),
        "updated_at": timestamp(secret.updated_at),
        "id": secret.id,
        "key": secret.key,
        "value": secret.value,
        "description": secret.description,
        "organization_id": agent.organization_id,
        "org_id": agent.organization_id,
        "user_id": agent.created_by_id,
        "value_enc": secret.value,
        "agent_id": agent.id,
        **({} if secret.unreadable is None else {"kelpie_error": secret.unreadable}),
    }


def _plain(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)
