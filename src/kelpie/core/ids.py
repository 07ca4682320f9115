"""Typed ids. An id is `<prefix>-<uuid4>` in lower case; a value of one of these types has been checked.

New ids need randomness and therefore come from `world.ids`; this module only parses them.
"""

import re
from typing import ClassVar, Self

from kelpie.core.errors import InvalidId

DEFAULT_CONVERSATION = "default"  # the name, instead of an id, of the conversation that every agent has

_UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class Id(str):
    """Base class of ids; each kind is a subclass with its own prefix."""

    __slots__ = ()
    prefix: ClassVar[str] = ""
    _pattern: ClassVar[re.Pattern[str]]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._pattern = re.compile(f"{re.escape(cls.prefix)}-{_UUID4}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The checked id. Raises InvalidId when the text has another shape."""
        if not cls._pattern.fullmatch(text):
            raise InvalidId(cls.prefix, text)
        return cls(text)

    @property
    def uuid(self) -> str:
        """The part after the prefix."""
        return self[len(self.prefix) + 1 :]


class AgentId(Id):
    prefix = "agent"


class BlockId(Id):
    prefix = "block"


class ToolId(Id):
    prefix = "tool"


class MessageId(Id):
    prefix = "message"


class RunId(Id):
    prefix = "run"


class StepId(Id):
    prefix = "step"


class ConversationId(Id):
    prefix = "conv"


class GroupId(Id):
    prefix = "group"


class JobId(Id):
    prefix = "job"


class ProviderId(Id):
    prefix = "provider"


class TraceId(Id):
    prefix = "provider_trace"


class ArchiveId(Id):
    prefix = "archive"


class PassageId(Id):
    prefix = "passage"


class FolderId(Id):
    prefix = "source"  # Letta's older name of folders


class FileId(Id):
    prefix = "file"


class FactId(Id):
    prefix = "fact"


class IdentityId(Id):
    prefix = "identity"


class McpServerId(Id):
    prefix = "mcp_server"


class McpTaskId(Id):
    prefix = "mcp_task"


class SandboxConfigId(Id):
    prefix = "sandbox"


class SandboxVariableId(Id):
    prefix = "sandbox-env"


class SecretId(Id):
    prefix = "agent-env"


class TemplateId(Id):
    prefix = "template"


class TemplateVersionId(Id):
    prefix = "template_version"


class DeploymentId(Id):
    prefix = "deployment"


class ProjectId(Id):
    prefix = "project"


class ScheduleId(Id):
    prefix = "schedule"


class FiringId(Id):
    prefix = "firing"


class HookId(Id):
    prefix = "hook"


class UserId(Id):
    prefix = "user"


class OrganizationId(Id):
    prefix = "org"


class KeyId(Id):
    prefix = "key"


class TokenId(Id):
    prefix = "token"


class SessionId(Id):
    prefix = "session"


DEFAULT_USER = UserId("user-00000000-0000-4000-8000-000000000000")
DEFAULT_ORGANIZATION = OrganizationId("org-00000000-0000-4000-8000-000000000000")
