"""Request bodies for templates."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kelpie.agent.templates.migration import MigrationOptions
from kelpie.agent.templates.templates import NewDeployment
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import IdentityId
from kelpie.server.http.limits.free_json import NamedTexts
from kelpie.server.http.limits.request_limits import MESSAGES_MAX, Links, Tags
from kelpie.server.letta.agents.body import CreateAgent
from kelpie.server.letta.compatibility import unsupported
from kelpie.server.letta.messages.body import MessageBody, new_message

AGENT_FILE, AGENT_FILE_JSON = "agent_file", "agent_file_json"

# Fields of a new agent that may be combined with a template; what the others would change comes from the template.
_WITH_TEMPLATE = frozenset(
    {
        "from_template", "memory_variables", "name", "tags", "identity_ids", "secrets",
        "tool_exec_environment_variables", "initial_message_sequence", "model", "embedding", "project_id",
    }
)  # fmt: skip


class CreateTemplate(BaseModel):
    """A new template, made from an agent or from an agent file."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["agent", "agent_file"]
    agent_id: str | None = Field(None, description="The agent that the template is made from; for the type `agent`.")
    agent_file: dict[str, Any] | None = Field(None, description="The agent file; for the type `agent_file`.")
    name: str | None = Field(None, description="The name of the template. Defaults to a random one.")
    update_existing_tools: bool = Field(
        False, description="Whether custom tools of the file replace the server's tools of the same names."
    )


class UpdateTemplate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    agent_file_json: dict[str, Any] = Field(description="The agent file that becomes the current version.")
    save_existing_changes: bool = Field(False, description="Whether unsaved changes are saved as a version before.")
    update_existing_tools: bool = Field(
        False, description="Whether custom tools of the file replace the server's tools of the same names."
    )


class SaveTemplate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    message: str | None = Field(None, description="What changed in this version.")
    migrate_agents: bool = Field(False, description="Whether the agents of the template get the new version.")
    block_reconciliation_strategy: Literal["reconcile-all", "preserve-deleted"] = "preserve-deleted"
    preserve_core_memories_on_migration: bool = Field(False, description="Whether blocks keep their values.")
    preserve_environment_variables_on_migration: bool = Field(
        False, description="Whether agents keep variables that the template does not name."
    )
    preserve_sources_on_migration: bool = Field(False, description="Without effect until Kelpie has folders.")

    def migration(self) -> MigrationOptions:
        return MigrationOptions(
            keep_memory=self.preserve_core_memories_on_migration,
            keep_variables=self.preserve_environment_variables_on_migration,
            remove_blocks=self.block_reconciliation_strategy == "reconcile-all",
        )


class RollBackTemplate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    version: str = Field(description="A saved version: its number, or `latest`.")


class CreateTemplateAgents(BaseModel):
    """The agents to make from a template. Name and first messages are those of its first agent."""

    model_config = ConfigDict(extra="ignore")

    agent_name: str | None = Field(None, description="Defaults to a random name.")
    identity_ids: Links | None = None
    initial_message_sequence: Annotated[list[MessageBody], Field(max_length=MESSAGES_MAX, fail_fast=True)] | None = None
    memory_variables: NamedTexts | None = Field(None, description="Values for the variables of the template.")
    tags: Tags | None = None
    tool_variables: NamedTexts | None = Field(None, description="Environment variables for tools.")


def new_deployment(body: CreateTemplateAgents, project_id: str | None) -> NewDeployment:
    messages = body.initial_message_sequence
    return NewDeployment(
        agent_name=body.agent_name,
        memory_variables=body.memory_variables or {},
        tool_variables=body.tool_variables or {},
        tags=tuple(body.tags or ()),
        identity_ids=tuple(IdentityId.parse(one) for one in body.identity_ids or ()),
        initial_messages=None if messages is None else tuple(new_message(message) for message in messages),
        project_id=project_id,
    )


def agent_deployment(body: CreateAgent, project_id: str | None) -> NewDeployment:
    """The deployment that a request for a new agent with `from_template` means. Raises InvalidInput for a field that
    the template decides."""
    unsupported.refuse({name: getattr(body, name, None) for name in unsupported.AGENT_FIELDS}, unsupported.AGENT_FIELDS)
    for name in sorted(body.model_fields_set - _WITH_TEMPLATE):
        if getattr(body, name) is not None:
            raise InvalidInput(
                name, "cannot be combined with from_template; omit it, or change the agent after it was made"
            )
    fields = CreateTemplateAgents(
        agent_name=body.name,
        identity_ids=body.identity_ids,
        initial_message_sequence=body.initial_message_sequence,
        memory_variables=body.memory_variables,
        tags=body.tags,
        tool_variables=(body.tool_exec_environment_variables or {}) | (body.secrets or {}),
    )
    made = new_deployment(fields, body.project_id or project_id)
    return NewDeployment(
        made.agent_name,
        made.memory_variables,
        made.tool_variables,
        made.tags,
        made.identity_ids,
        made.initial_messages,
        body.model,
        body.embedding,
        made.project_id,
    )
