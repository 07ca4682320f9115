"""Request bodies for agents, and their translation into domain records.

Unknown fields are ignored, as in Letta; known fields that are not supported yet are refused by name.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from kelpie.agent.prompt.agent_types import spec_of
from kelpie.core.agents.agent import AgentType, NewAgent, ToolRule
from kelpie.core.conversations.runs import StopReason
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import BlockId, FolderId, IdentityId, MessageId, ToolId
from kelpie.core.json_limits import LISTED
from kelpie.server.http.limits.free_json import FreeSettings, Metadata, NamedTexts, within
from kelpie.server.http.limits.request_limits import LINKS_MAX, MESSAGES_MAX, Links, MessageIds, Tags
from kelpie.server.http.times import moment
from kelpie.server.letta.agents.budget_body import BudgetBody
from kelpie.server.letta.agents.fact_settings_body import FactSettingsBody
from kelpie.server.letta.agents.permission_body import LimitsBody, PermitsBody
from kelpie.server.letta.agents.tool_rule_body import ToolRuleBody, tool_rule
from kelpie.server.letta.blocks.body import CreateBlock, new_block
from kelpie.server.letta.compatibility import unsupported
from kelpie.server.letta.messages.body import MessageBody, new_message
from kelpie.server.letta.models.body import (
    EmbeddingConfig,
    LlmConfig,
    ModelSettings,
    ResponseFormat,
    requested_settings,
)

MAX_FILES_OPEN = 1000

Tokens = Annotated[int, Field(gt=0, le=2**53)]
ToolRules = Annotated[list[ToolRuleBody], Field(max_length=LINKS_MAX, fail_fast=True), BeforeValidator(within(LISTED))]


class _AgentFields(BaseModel):
    """Fields of requests that create or change an agent."""

    model_config = ConfigDict(extra="ignore")

    system: str | None = Field(None, description="The instructions that open the agent's prompt.")
    model: str | None = Field(None, description="The model's handle: `provider/model`, such as `kelpie/demo`.")
    embedding: str | None = Field(None, description="The embedding model's handle.")
    model_settings: ModelSettings | None = None
    context_window_limit: Tokens | None = None
    max_tokens: Tokens | None = Field(None, description="Maximum length of a model reply, in tokens.")
    parallel_tool_calls: bool | None = None
    description: str | None = None
    metadata: Metadata | None = None
    block_ids: Links | None = None
    tool_ids: Links | None = None
    tool_rules: ToolRules | None = None
    tags: Tags | None = None
    secrets: NamedTexts | None = Field(None, description="Environment variables for tools.")
    tool_exec_environment_variables: NamedTexts | None = Field(None, json_schema_extra={"deprecated": True})
    timezone: str | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    compaction_settings: FreeSettings | None = None
    response_format: ResponseFormat | None = Field(None, description="The format of every answer of the agent.")
    max_files_open: Annotated[int, Field(ge=0)] | None = None
    per_file_view_window_char_limit: Annotated[int, Field(ge=0, le=2**31)] | None = None
    llm_config: LlmConfig | None = Field(None, json_schema_extra={"deprecated": True})
    embedding_config: EmbeddingConfig | None = Field(None, json_schema_extra={"deprecated": True})
    source_ids: Links | None = None
    folder_ids: Links | None = None
    identity_ids: Links | None = None
    kelpie_budget: BudgetBody | None = Field(None, description="The agent's budget (Kelpie).")
    kelpie_facts: FactSettingsBody | None = Field(
        None, description="Settings for extracting facts from conversations (Kelpie)."
    )
    kelpie_permissions: PermitsBody | None = Field(None, description="The tools that the agent may use (Kelpie).")
    kelpie_limits: LimitsBody | None = Field(None, description="The agent's limits per hour and per call (Kelpie).")
    enable_sleeptime: bool | None = None

    @field_validator("embedding")
    @classmethod
    def _is_handle(cls, value: str | None) -> str | None:
        if value is not None and "/" not in value:
            raise ValueError("the embedding handle must have the form provider/model")
        return value


class CreateAgent(_AgentFields):
    """A new agent; omitted fields get their default."""

    name: str | None = Field(None, description="Any text without control characters, up to 1,000 characters.")
    agent_type: AgentType = AgentType.letta_v1_agent
    memory_blocks: Annotated[list[CreateBlock], Field(max_length=LINKS_MAX, fail_fast=True)] | None = None
    tools: Links | None = Field(None, description="Names of tools to attach.")
    include_base_tools: bool = True
    include_base_tool_rules: bool | None = None
    initial_message_sequence: Annotated[list[MessageBody], Field(max_length=MESSAGES_MAX, fail_fast=True)] | None = None
    embedding_chunk_size: Annotated[int, Field(gt=0, le=2**31)] | None = 300
    max_reasoning_tokens: Annotated[int, Field(ge=0, le=2**53)] | None = None
    reasoning: bool | None = Field(None, description="False: the model does not think before it acts, if it can.")
    enable_reasoner: bool | None = Field(None, json_schema_extra={"deprecated": True})
    message_buffer_autoclear: bool = False
    include_multi_agent_tools: bool = False
    include_default_source: bool = False
    from_template: str | None = Field(None, description="A version of a template, such as `support:latest`.")
    template: bool = False
    memory_variables: NamedTexts | None = Field(None, description="Values for the variables of the template.")

    @model_validator(mode="after")
    def _has_companion(self) -> "CreateAgent":
        if spec_of(self.agent_type).needs_companion and not self.enable_sleeptime:
            raise ValueError(f"a {self.agent_type} needs enable_sleeptime to be true")
        return self


class UpdateAgent(_AgentFields):
    """Changes to an agent; omitted or null fields stay as they are, but null clears `max_tokens`, `kelpie_budget`,
    `kelpie_facts`, `kelpie_permissions` and `kelpie_limits`.
    """

    name: str | None = None
    message_ids: MessageIds | None = None
    message_buffer_autoclear: bool | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: Annotated[int, Field(ge=0, le=2**53)] | None = None
    last_stop_reason: StopReason | None = None


def new_agent(body: CreateAgent) -> NewAgent:
    """The agent that a client asks for. Raises InvalidInput for an invalid or unsupported field."""
    unsupported.refuse({name: getattr(body, name, None) for name in unsupported.AGENT_FIELDS}, unsupported.AGENT_FIELDS)
    if body.memory_variables:
        raise InvalidInput("memory_variables", "needs from_template, which names the template that has the variables")
    if body.from_template:
        raise InvalidInput("from_template", "is only possible with POST /v1/agents; use it there")
    fields = _translated(body) | {
        "reasoning": body.enable_reasoner if body.reasoning is None else body.reasoning,
        "max_reasoning_tokens": _reasoning_tokens(body),
        "agent_type": body.agent_type,
        "embedding_chunk_size": body.embedding_chunk_size,
        "memory_blocks": tuple(new_block(block) for block in body.memory_blocks or ()),
        "tools": tuple(body.tools or ()),
        "include_base_tools": body.include_base_tools,
        "include_multi_agent_tools": body.include_multi_agent_tools,
        "include_base_tool_rules": body.include_base_tool_rules,
        "include_default_folder": body.include_default_source,
        "message_buffer_autoclear": body.message_buffer_autoclear,
    }
    if body.initial_message_sequence is not None:
        fields["initial_messages"] = tuple(new_message(message) for message in body.initial_message_sequence)
    return NewAgent(**fields)


def _reasoning_tokens(body: CreateAgent) -> int | None:
    """The budget for thoughts. Raises InvalidInput unless the limit on the whole reply has room for it."""
    wanted, settings = body.max_reasoning_tokens, body.model_settings
    limit = (settings.max_output_tokens if settings else None) or body.max_tokens
    if wanted and (limit is None or wanted > limit):
        larger = f"max_tokens ({limit})" if limit else "max_tokens, which is missing"
        raise InvalidInput("max_reasoning_tokens", f"must not be more than {larger}; set a larger max_tokens")
    return wanted


def agent_changes(body: UpdateAgent) -> dict[str, Any]:
    """The changes a client asks for, by the names of `NewAgent`. Raises InvalidInput."""
    unsupported.refuse({name: getattr(body, name, None) for name in unsupported.AGENT_FIELDS}, unsupported.AGENT_FIELDS)
    changes = _translated(body)
    if body.model is not None:  # as in Letta, whose clients rely on a change of the model to end thoughts in tool calls
        changes["inner_thoughts"] = False
    elif body.llm_config is not None:
        changes |= body.llm_config.reasoning_changes()
    if body.message_ids is not None:
        changes["message_ids"] = tuple(MessageId.parse(one) for one in body.message_ids)
    if body.message_buffer_autoclear is not None:
        changes["message_buffer_autoclear"] = body.message_buffer_autoclear
    if body.last_run_completion is not None:
        changes["last_run_completion"] = moment("last_run_completion", body.last_run_completion)
    if body.last_run_duration_ms is not None:
        changes["last_run_duration_ms"] = body.last_run_duration_ms
    if body.last_stop_reason is not None:
        changes["last_stop_reason"] = body.last_stop_reason.value
    for field, name in _CLEARED_BY_NULL.items():
        if field in body.model_fields_set:
            changes.setdefault(name, None)
    return changes


_CLEARED_BY_NULL = {
    "kelpie_budget": "budget",
    "kelpie_facts": "facts",
    "kelpie_permissions": "permits",
    "kelpie_limits": "quota",
    "max_tokens": "max_tokens",
}


_SAME_NAME = (
    "name",
    "system",
    "model",
    "embedding",
    "context_window_limit",
    "max_tokens",
    "parallel_tool_calls",
    "description",
    "metadata",
    "timezone",
    "hidden",
    "project_id",
    "template_id",
    "base_template_id",
    "compaction_settings",
    "response_format",
    "max_files_open",
    "per_file_view_window_char_limit",
    "enable_sleeptime",
)


def _translated(body: CreateAgent | UpdateAgent) -> dict[str, Any]:
    """The fields both bodies share, without those that are null. Older ways to name the model come first."""
    fields: dict[str, Any] = {}
    if body.llm_config:
        fields |= body.llm_config.requested()
    if body.embedding_config:
        fields |= body.embedding_config.requested()
    fields |= {name: value for name in _SAME_NAME if (value := getattr(body, name)) is not None}
    if body.model_settings is not None:
        fields["model_settings"] = requested_settings(body.model_settings, fields.get("model"))
    if body.kelpie_budget is not None:
        fields["budget"] = body.kelpie_budget.budget()
    if body.kelpie_facts is not None:
        fields["facts"] = body.kelpie_facts.settings()
    if body.kelpie_permissions is not None:
        fields["permits"] = body.kelpie_permissions.permits()
    if body.kelpie_limits is not None:
        fields["quota"] = body.kelpie_limits.quota()
    if body.tool_ids is not None:
        fields["tool_ids"] = tuple(ToolId.parse(one) for one in body.tool_ids)
    if body.block_ids is not None:
        fields["block_ids"] = tuple(BlockId.parse(one) for one in body.block_ids)
    if body.identity_ids is not None:
        fields["identity_ids"] = tuple(IdentityId.parse(one) for one in body.identity_ids)
    if (folders := body.source_ids if body.folder_ids is None else body.folder_ids) is not None:
        fields["folder_ids"] = tuple(FolderId.parse(one) for one in folders)
    if body.tags is not None:
        fields["tags"] = tuple(body.tags)
    if body.tool_rules is not None:
        fields["tool_rules"] = tuple[ToolRule, ...](tool_rule(rule) for rule in body.tool_rules)
    if body.secrets is not None or body.tool_exec_environment_variables is not None:
        fields["secrets"] = (body.tool_exec_environment_variables or {}) | (body.secrets or {})
    if (body.max_files_open or 0) > MAX_FILES_OPEN:
        raise InvalidInput("max_files_open", f"must not be more than {MAX_FILES_OPEN}")
    return fields
