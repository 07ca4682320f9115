"""Agent files as values: agents with everything that belongs to them, outside of any database.

In a file everything has an id of the file, such as `agent-0`; here it is called a reference. What this server cannot
use yet, such as skills, is kept as it is, so that the next export has it again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from kelpie.core.agents.agent import AgentView, NewAgent
from kelpie.core.agents.deployments import Deployment
from kelpie.core.agents.groups import Group, Manager
from kelpie.core.conversations.messages import Message
from kelpie.core.files.files import File, FileView
from kelpie.core.files.folders import Folder, NewFolder
from kelpie.core.ids import AgentId, GroupId, MessageId
from kelpie.core.memory.blocks import Block, NewBlock
from kelpie.core.time import Micros
from kelpie.core.tools.mcp_servers import McpConfig, McpServer
from kelpie.core.tools.tools import NewTool, Tool, ToolType

Document = Mapping[str, Any]
"""A part of a file as it stands there."""


def member(document: Document, name: str) -> Document:
    """The object under a name; an empty one when there is none."""
    found: Any = document.get(name)
    return cast("Document", found) if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class FileBlock:
    reference: str
    new: NewBlock


@dataclass(frozen=True, slots=True)
class FileTool:
    """A tool of a file. `new` describes a custom one; `server_name` is the server of one that runs on an MCP server."""

    reference: str
    name: str
    tool_type: ToolType
    document: Document
    new: NewTool | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class FileServer:
    """An MCP server of a file, without its secrets. `config` is None when the file's makes no sense."""

    reference: str
    name: str
    config: McpConfig | None
    document: Document


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A group of a file; `manager` names no agent, `leader` does."""

    reference: str
    description: str
    manager: Manager
    leader: str | None
    members: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    hidden: bool | None = None
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileFolder:
    reference: str
    new: NewFolder


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a folder, with its text."""

    reference: str
    folder: str
    name: str
    original_name: str
    media_type: str
    size: int
    text: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What an agent saw of a file; lines count from 1, both included."""

    file: str
    is_open: bool
    accessed_at: Micros | None = None
    start_line: int | None = None
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class FileAgent:
    """An agent of a file. `messages` are the references of its messages, `context` of those that its model sees."""

    reference: str
    new: NewAgent
    blocks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    open_files: tuple[OpenFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageIds:
    """The ids that the messages of one agent get, and the groups that they may name."""

    agent_id: AgentId
    by_reference: Mapping[str, MessageId]
    groups: Mapping[str, str]
    now: Micros  # the time of a message without one

    def group(self, name: str | None) -> str | None:
        """The group that a message names. Letta leaves the id of the exported group in the messages, which is no
        reference; in a file with one group it can only be that one."""
        if not name or not self.groups:
            return None
        return next(iter(self.groups.values())) if len(self.groups) == 1 else self.groups.get(name)


class FileMessages(Protocol):
    """The messages of a file, which may be many."""

    def of_agent(self, number: int, ids: MessageIds) -> Iterator[list[Message]]:
        """The messages of an agent in pieces, in their order. Raises InvalidInput."""
        ...


@dataclass(frozen=True, slots=True)
class AgentFile:
    agents: tuple[FileAgent, ...]
    messages: FileMessages
    blocks: tuple[FileBlock, ...] = ()
    tools: tuple[FileTool, ...] = ()
    servers: tuple[FileServer, ...] = ()
    groups: tuple[FileGroup, ...] = ()
    folders: tuple[FileFolder, ...] = ()
    files: tuple[FolderFile, ...] = ()
    notes: tuple[str, ...] = ()  # about what it does not say, or was left out when it was read
    skills: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Wishes of the client that imports a file; None: as the file has it."""

    override_existing_tools: bool = True
    strip_messages: bool = False
    append_copy_suffix: bool = True
    name: str | None = None
    model: str | None = None
    embedding: str | None = None
    project_id: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    deployment: Deployment | None = None  # when the file is a template


@dataclass(frozen=True, slots=True)
class Imported:
    """The agents and groups that an import made, and what it did otherwise than the file says."""

    agent_ids: tuple[AgentId, ...]
    group_ids: tuple[GroupId, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptParts:
    """Parts of a file that this server cannot use yet, with ids that are unique on it."""

    tools: tuple[Document, ...] = ()
    servers: tuple[Document, ...] = ()
    skills: tuple[Document, ...] = ()

    @property
    def empty(self) -> bool:
        return self == NOTHING_KEPT


NOTHING_KEPT = KeptParts()


@dataclass(frozen=True, slots=True)
class ExportedAgent:
    """An agent to write into a file, without its messages."""

    view: AgentView
    blocks: tuple[Block, ...]
    tools: tuple[Tool, ...]
    context: tuple[MessageId, ...]
    kept: KeptParts
    files: tuple[FileView, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """A folder with its files and their texts."""

    folder: Folder
    files: tuple[tuple[File, str], ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """Everything of a file but its messages."""

    agents: tuple[ExportedAgent, ...]
    folders: tuple[ExportedFolder, ...]
    groups: tuple[Group, ...]
    servers: tuple[McpServer, ...]
    remote_names: Mapping[str, str]  # of tools that have another name on their MCP server, by their ids
    at: Micros


class FileWriter(Protocol):
    """Writes a file piece by piece: each agent, and after it its messages."""

    def begin(self, exported: Exported) -> None: ...

    def agent(self, agent: ExportedAgent) -> None: ...

    def messages(self, some: Sequence[Message]) -> None: ...

    def end(self) -> list[bytes]:
        """The pieces of the whole file."""
        ...

    @property
    def size(self) -> int:
        """Number of bytes so far."""
        ...
