"""Ids in paths. An invalid one is a 422 that names the parameter and shows an example; for run ids it is a 400."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Path
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kelpie.core.ids import (
    AgentId,
    ArchiveId,
    BlockId,
    ConversationId,
    FactId,
    FileId,
    FolderId,
    GroupId,
    Id,
    IdentityId,
    JobId,
    KeyId,
    MessageId,
    OrganizationId,
    PassageId,
    ProviderId,
    SandboxConfigId,
    SandboxVariableId,
    StepId,
    ToolId,
)

_UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class _IdValidator:
    """Pydantic annotation that validates and makes one kind of id."""

    def __init__(self, kind: type[Id]) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(pattern=f"^{self._kind.prefix}-{_UUID4}$")
        return core_schema.no_info_after_validator_function(self._kind, text)


def _path(kind: type[Id], name: str) -> Any:
    return Annotated[kind, _IdValidator(kind), Path(description=f"The id of the {name}: `{kind.prefix}-<uuid4>`.")]


if TYPE_CHECKING:
    AgentPath = AgentId
    ArchivePath = ArchiveId
    IdentityPath = IdentityId
    PassagePath = PassageId
    ProviderPath = ProviderId
    FactPath = FactId
    FilePath = FileId
    FolderPath = FolderId
    SourcePath = FolderId
    BlockPath = BlockId
    ToolPath = ToolId
    MessagePath = MessageId
    StepPath = StepId
    KeyPath = KeyId
    SandboxPath = SandboxConfigId
    SandboxVariablePath = SandboxVariableId
    ConversationPath = ConversationId
    GroupPath = GroupId
    JobPath = JobId
    OrganizationPath = OrganizationId
    ThreadPath = str
else:
    AgentPath = _path(AgentId, "agent")
    ArchivePath = _path(ArchiveId, "archive")
    IdentityPath = _path(IdentityId, "identity")
    PassagePath = _path(PassageId, "passage")
    ProviderPath = _path(ProviderId, "provider")
    FactPath = _path(FactId, "fact")
    FilePath = _path(FileId, "file")
    FolderPath = _path(FolderId, "folder")
    SourcePath = _path(FolderId, "source")
    BlockPath = _path(BlockId, "block")
    ToolPath = _path(ToolId, "tool")
    MessagePath = _path(MessageId, "message")
    StepPath = _path(StepId, "step")
    KeyPath = _path(KeyId, "key")
    SandboxPath = _path(SandboxConfigId, "sandbox configuration")
    SandboxVariablePath = _path(SandboxVariableId, "environment variable")
    ConversationPath = _path(ConversationId, "conversation")
    GroupPath = _path(GroupId, "group")
    JobPath = _path(JobId, "job")
    OrganizationPath = _path(OrganizationId, "organization")
    ThreadPath = Annotated[
        str,
        Path(
            pattern=f"^(default|conv-{_UUID4}|agent-{_UUID4})$",
            description="The id of the conversation, or `default` for the agent's default conversation.",
        ),
    ]
