"""An agent as it is configured. Its memory is in blocks and messages; its behaviour is in the package `agent`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kelpie.core.access.consumers import Consumer
from kelpie.core.access.identities import Identity
from kelpie.core.agents.activation_state import ActivationState
from kelpie.core.agents.groups import Group
from kelpie.core.conversations.messages import Message, NewMessage
from kelpie.core.conversations.runs import StopReason
from kelpie.core.files.files import FileView
from kelpie.core.files.folders import Folder
from kelpie.core.ids import (
    DEFAULT_ORGANIZATION,
    AgentId,
    BlockId,
    FolderId,
    IdentityId,
    MessageId,
    OrganizationId,
    SecretId,
    ToolId,
)
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.memory.facts import FactSettings
from kelpie.core.paging import Page
from kelpie.core.permissions.budgets import Budget
from kelpie.core.permissions.quotas import Quota
from kelpie.core.permissions.tool_permissions import ToolPatterns
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool


class AgentType(StrEnum):
    letta_v1_agent = "letta_v1_agent"
    memgpt_agent = "memgpt_agent"
    memgpt_v2_agent = "memgpt_v2_agent"
    react_agent = "react_agent"
    workflow_agent = "workflow_agent"
    split_thread_agent = "split_thread_agent"
    sleeptime_agent = "sleeptime_agent"
    voice_convo_agent = "voice_convo_agent"
    voice_sleeptime_agent = "voice_sleeptime_agent"

    @property
    def has_heartbeats(self) -> bool:
        """True if the model itself asks for its next step; otherwise any tool call leads to another step."""
        return self not in (self.letta_v1_agent, self.sleeptime_agent, self.voice_sleeptime_agent)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model of an agent and its settings. `settings` holds what the client asked for, by the wire's names."""

    handle: str
    context_window: int
    max_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inner_thoughts: bool | None = None  # true if tool calls ask for the model's thoughts; None: as the agent type does

    @property
    def thinks(self) -> bool:
        """True if the model is configured to reason by itself, so that tool calls need no argument for its thoughts."""
        asked: object = self.settings.get("thinking")
        return isinstance(asked, Mapping) and asked.get("type") in ("enabled", "adaptive")  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A constraint on when a tool may or must be called; `options` are the fields its type adds."""

    type: str
    tool_name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Secret:
    id: SecretId
    key: str
    value: str
    created_at: Micros
    updated_at: Micros
    description: str | None = None
    unreadable: str | None = None  # why it cannot be decrypted; then the value is empty


@dataclass(frozen=True, slots=True)
class Agent:
    id: AgentId
    name: str
    agent_type: AgentType
    system: str
    model: ModelChoice
    created_at: Micros
    updated_at: Micros
    embedding: str | None = None
    embedding_chunk_size: int = 300
    description: str | None = None
    metadata: Mapping[str, Any] | None = None
    tool_rules: tuple[ToolRule, ...] = ()
    tags: tuple[str, ...] = ()
    timezone: str = "UTC"
    hidden: bool | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    compaction_settings: Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    message_buffer_autoclear: bool = False
    enable_sleeptime: bool | None = None
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    last_run_completion: Micros | None = None
    last_run_duration_ms: int | None = None
    last_stop_reason: StopReason | None = None
    stopped: bool = False
    paused_at: Micros | None = None  # the time it asked for a pause; see agent/live/pauses.py
    paused_until: Micros | None = None
    budget: Budget | None = None
    facts: FactSettings | None = None  # None: none are extracted
    permits: ToolPatterns | None = None  # the tools it may use; None: it has no lists of its own
    quota: Quota | None = None  # limits on its use of the machine; None: it has none of its own
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    version: int = 1

    @property
    def consumer(self) -> Consumer:
        """The agent, as one that takes turns with others."""
        return Consumer(self.organization_id, self.id)


@dataclass(frozen=True, slots=True)
class ActivationStatus:
    """The present state of an agent's activation, for people to see."""

    state: ActivationState
    error: str | None = None
    failed_at: Micros | None = None
    attempts: int = 0
    retry_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent with its relations. Relations that the client did not ask for are empty."""

    agent: Agent
    message_ids: tuple[MessageId, ...] = ()
    blocks: tuple[Block, ...] = ()
    tools: tuple[Tool, ...] = ()
    secrets: tuple[Secret, ...] = ()
    identities: tuple[Identity, ...] = ()
    folders: tuple[Folder, ...] = ()
    managed_group: Group | None = None
    pending_approval: Message | None = None  # the reply of the default conversation whose calls wait for an answer
    status: ActivationStatus = ActivationStatus(ActivationState.unloaded)
    paused_until: Micros | None = None  # None when it is not paused now
    files: tuple[FileView, ...] = ()  # of its folders, with the text of the open ones; only if one agent was asked for


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to create, as the client described it; None means the default."""

    name: str | None = None
    agent_type: AgentType = AgentType.letta_v1_agent
    system: str | None = None
    model: str | None = None
    embedding: str | None = None
    embedding_chunk_size: int | None = None
    context_window_limit: int | None = None
    max_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    model_settings: Mapping[str, Any] | None = None
    reasoning: bool | None = None  # false: the model shall not think, in whatever way it would
    max_reasoning_tokens: int | None = None
    inner_thoughts: bool | None = None  # as in `ModelChoice`
    description: str | None = None
    metadata: Mapping[str, Any] | None = None
    memory_blocks: tuple[NewBlock, ...] = ()
    block_ids: tuple[BlockId, ...] = ()
    tools: tuple[str, ...] = ()
    tool_ids: tuple[ToolId, ...] = ()
    tool_rules: tuple[ToolRule, ...] | None = None
    tags: tuple[str, ...] = ()
    identity_ids: tuple[IdentityId, ...] = ()
    folder_ids: tuple[FolderId, ...] = ()
    include_default_folder: bool = False  # makes a folder for the agent alone
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    include_base_tools: bool = True
    include_multi_agent_tools: bool = False
    include_base_tool_rules: bool | None = None
    initial_messages: tuple[NewMessage, ...] | None = None
    timezone: str | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    compaction_settings: Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    message_buffer_autoclear: bool = False
    enable_sleeptime: bool | None = None
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    budget: Budget | None = None
    facts: FactSettings | None = None
    permits: ToolPatterns | None = None
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class AgentQuery:
    """Filter for a list of agents."""

    page: Page = Page()
    name: str | None = None
    query_text: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    created_by_id: str | None = None
    last_stop_reason: str | None = None
    identity_id: str | None = None
    identifier_keys: tuple[str, ...] = ()
    only: tuple[AgentId, ...] | None = None  # no others, whatever matches
    show_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Include:
    """The relations of an agent to load."""

    blocks: bool = False
    tools: bool = False
    tags: bool = False
    secrets: bool = False
    identities: bool = False
    folders: bool = False
    managed_group: bool = False
    pending_approval: bool = False


EVERYTHING = Include(
    blocks=True,
    tools=True,
    tags=True,
    secrets=True,
    identities=True,
    folders=True,
    managed_group=True,
    pending_approval=True,
)
