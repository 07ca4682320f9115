"""Export of agents into an agent file: read in one transaction, so that it shows one moment, and written page by page.

The messages are never all in memory as values: each page is written before the next is read.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import EVERYTHING, AgentView
from kelpie.core.agents.agent_file import Exported, ExportedAgent, ExportedFolder, FileWriter
from kelpie.core.conversations.conversations import ThreadQuery
from kelpie.core.conversations.messages import Message, MessageQuery
from kelpie.core.errors import Conflict, Damaged, NotFound
from kelpie.core.files.files import FileView, full_name
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, ConversationId, MessageId
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.mcp_servers import McpServer
from kelpie.core.tools.tools import ToolType
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import groups, kept_parts
from kelpie.storage.blocks import attachments as block_attachments
from kelpie.storage.blocks.blocks import require_whole
from kelpie.storage.conversations import contexts, conversations, messages, thread_messages
from kelpie.storage.files import files, passages, views
from kelpie.storage.tools import mcp_servers, mcp_tools
from kelpie.storage.views import agents as agent_views
from kelpie.world.database import Tx
from kelpie.world.world import World

PAGE = 200


class AgentFileExports:
    """Exports agents of the caller's organization."""

    def __init__(self, world: World, settings: Settings, caller: Caller = DEFAULT_CALLER) -> None:
        self._world = world
        self._settings = settings
        self._organization = caller.organization_id

    async def write(
        self,
        agent_id: AgentId,
        new_writer: Callable[[], FileWriter],
        conversation_id: ConversationId | None = None,
        *,
        scrub_messages: bool = False,
    ) -> list[bytes]:
        """The file of an agent, in pieces: with the group that it leads and its members. With a conversation, the
        messages of that one are the history of the agent.

        Raises NotFound, Damaged, and Conflict when the file would be too large to be imported.
        """
        now = self._world.clock.now()

        def read(tx: Tx) -> list[bytes]:
            found = self._exported(tx, agent_id, conversation_id, now)
            writer = new_writer()
            writer.begin(found)
            for each in found.agents:
                writer.agent(each)
                own = conversation_id if each.view.agent.id == agent_id else None
                for page in () if scrub_messages else _pages(tx, each, own):
                    writer.messages([_whole(message) for message in page])
                    self._require_small(writer.size)
            pieces = writer.end()
            self._require_small(writer.size)
            return pieces

        return await self._world.database.read(read)

    def _exported(self, tx: Tx, agent_id: AgentId, conversation: ConversationId | None, now: int) -> Exported:
        row_ownership.agent(tx, self._organization, agent_id)
        if conversation is not None:
            found = conversations.get(tx, self._organization, conversation)
            if found.agent_id != agent_id:
                raise NotFound("Conversation", conversation)
        led = groups.led_by(tx, (agent_id,)).get(agent_id)
        members = tuple(dict.fromkeys((agent_id, *(led.agent_ids if led else ()))))
        agents = tuple(self._agent(tx, each, conversation if each == agent_id else None) for each in members)
        tools = [tool for each in agents for tool in each.tools if tool.tool_type is ToolType.external_mcp]
        origins = {tool.id: mcp_tools.origin(tx, tool.id) for tool in tools}
        remote = {
            str(tool.id): origin.remote_name
            for tool in tools
            if (origin := origins[tool.id]) is not None and origin.remote_name != tool.name
        }
        wanted = {origin.server_id for origin in origins.values() if origin is not None}
        folders = self._folders(tx, agents)
        return Exported(agents, folders, (led,) if led else (), self._servers(tx, wanted), remote, now)

    def _folders(self, tx: Tx, agents: Sequence[ExportedAgent]) -> tuple[ExportedFolder, ...]:
        """The folders of the agents, each once. Raises Conflict when their texts are too long for a file, or are not
        all there yet."""
        found = {folder.id: folder for each in agents for folder in each.view.folders}
        if (busy := files.first_unfinished(tx, list(found))) is not None:
            raise Conflict(
                f"The file {full_name(found[busy.folder_id].name, busy.name)} is still being processed. Export the "
                "agent again when it is completed."
            )
        inside = {folder_id: files.completed(tx, folder_id) for folder_id in found}
        self._require_small(sum(file.chars for some in inside.values() for file in some))
        return tuple(
            ExportedFolder(folder, tuple((file, passages.text(tx, file.id)) for file in inside[folder.id]))
            for folder in found.values()
        )

    def _agent(self, tx: Tx, agent_id: AgentId, conversation: ConversationId | None) -> ExportedAgent:
        view = agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)
        lane = conversation or ""
        blocks = block_attachments.seen(tx, agent_id, conversation)[0] if conversation else view.blocks
        return ExportedAgent(
            view,
            tuple(require_whole(block) for block in blocks),
            view.tools,
            contexts.ids(tx, agent_id, lane),
            kept_parts.read(tx, agent_id),
            tuple(views.with_text(tx, view.agent, each) for each in _files_of(tx, view)),
        )

    def _servers(self, tx: Tx, wanted: Collection[str]) -> tuple[McpServer, ...]:
        if not wanted:
            return ()
        every = mcp_servers.select(tx, self._organization, self._world.keyring)
        return tuple(server for server in every if server.id in wanted)

    def _require_small(self, size: int) -> None:
        if size > self._settings.upload_bytes_max:
            raise Conflict(
                f"The agent file has more than {self._settings.upload_bytes_max} bytes, so it could not be imported. "
                "Raise KELPIE_UPLOAD_BYTES_MAX, or export without messages (scrub_messages)."
            )


def _files_of(tx: Tx, view: AgentView) -> list[FileView]:
    return views.every(tx, view.agent.id, None) if view.folders else []


def _whole(message: Message) -> Message:
    if message.lost:
        raise Damaged("Message", message.id)
    return message


def _pages(tx: Tx, agent: ExportedAgent, conversation: ConversationId | None) -> Iterator[list[Message]]:
    """The messages of a conversation, oldest first, and then those of its context that are not among them."""
    left = dict.fromkeys(agent.context)
    for page in _thread(tx, conversation) if conversation else _history(tx, agent.view.agent.id):
        for message in page:
            left.pop(message.id, None)
        yield page
    ids = list(left)
    for start in range(0, len(ids), PAGE):
        yield messages.get_many(tx, ids[start : start + PAGE])


def _history(tx: Tx, agent_id: AgentId) -> Iterator[list[Message]]:
    after: MessageId | None = None
    while page := messages.select_of_agent(
        tx,
        agent_id,
        MessageQuery(limit=PAGE, after=after, descending=False, conversation_id=DEFAULT_CONVERSATION),
    ):
        yield page
        after = page[-1].id


def _thread(tx: Tx, conversation: ConversationId) -> Iterator[list[Message]]:
    after: MessageId | None = None
    while page := thread_messages.read(tx, conversation, ThreadQuery(limit=PAGE, after=after, descending=False)):
        yield page
        after = page[-1].id
