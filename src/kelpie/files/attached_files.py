"""Files of an agent, for clients: its folders attached and detached, its files opened and closed.

Every change is a small transaction, after which the live agent reloads, so nothing waits behind a turn.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.agent import EVERYTHING, AgentView
from kelpie.core.errors import NotFound
from kelpie.core.files.files import FileView, view_id
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId, FileId, FolderId
from kelpie.core.paging import Page
from kelpie.storage.accounts import row_ownership
from kelpie.storage.agents import agents
from kelpie.storage.files import attachments, folders, views
from kelpie.storage.views import agents as agent_views
from kelpie.world.database import Tx
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class FilePage:
    """A page of an agent's files; `has_more` is true if others follow."""

    files: Sequence[FileView]
    has_more: bool

    def next_cursor(self, agent_id: AgentId) -> str | None:
        return view_id(agent_id, self.files[-1].file.id) if self.files else None


class AttachedFiles:
    """Folders and files of agents of the caller's organization."""

    def __init__(
        self, world: World, reload_agents: Callable[[Iterable[AgentId]], None], caller: Caller = DEFAULT_CALLER
    ) -> None:
        self._world = world
        self._reload_agents = reload_agents
        self._organization = caller.organization_id

    async def folders(self, agent_id: AgentId, page: Page) -> list[Folder]:
        """The folders of an agent. Raises NotFound."""

        def read(tx: Tx) -> list[Folder]:
            row_ownership.agent(tx, self._organization, agent_id)
            return attachments.page_of_agent(tx, self._organization, agent_id, page)

        return await self._world.database.read(read)

    async def attach(self, agent_id: AgentId, folder_id: FolderId) -> AgentView:
        """Gives an agent a folder, with the file tools if it is its first. Raises NotFound, InvalidInput."""
        return await self._change(agent_id, folder_id, attachments.attach)

    async def detach(self, agent_id: AgentId, folder_id: FolderId) -> AgentView:
        """Takes a folder from an agent, with the file tools if it was its last. Raises NotFound."""
        return await self._change(agent_id, folder_id, attachments.detach)

    async def _change(self, agent_id: AgentId, folder_id: FolderId, change: Callable[..., bool]) -> AgentView:
        now = self._world.clock.now()

        def write(tx: Tx) -> AgentView:
            row_ownership.agent(tx, self._organization, agent_id)
            folders.require(tx, self._organization, folder_id)
            change(tx, self._organization, agent_id, folder_id, now)
            return agent_views.one(tx, agent_id, EVERYTHING, self._world.keyring)

        view = await self._world.database.transact(write)
        self._reload_agents((agent_id,))
        return view

    async def files(self, agent_id: AgentId, page: Page, is_open: bool | None = None) -> FilePage:
        """The files of an agent's folders on a page; none for an unknown agent."""

        def read(tx: Tx) -> FilePage:
            found = agents.get_many(tx, self._organization, [agent_id])
            if not found:
                return FilePage((), has_more=False)
            return FilePage(*views.page_of(tx, self._organization, found[0], page, is_open))

        return await self._world.database.read(read)

    async def open(self, agent_id: AgentId, file_id: FileId) -> list[str]:
        """Opens a file from its start; returns the names of the files that were closed for it. Raises NotFound."""
        now = self._world.clock.now()

        def write(tx: Tx) -> list[str]:
            agent = agents.owned(tx, self._organization, agent_id)
            self._require(tx, agent_id, file_id)
            views.open_file(tx, agent, file_id, now)
            closed = views.evict(tx, agent, (file_id,))
            agents.bump(tx, agent_id)
            return [view.name for view in closed]

        closed = await self._world.database.transact(write)
        self._reload_agents((agent_id,))
        return closed

    async def close(self, agent_id: AgentId, file_id: FileId) -> None:
        """Closes a file, if it is open. Raises NotFound."""

        def write(tx: Tx) -> None:
            agents.owned(tx, self._organization, agent_id)
            self._require(tx, agent_id, file_id)
            views.close(tx, agent_id, [file_id])
            agents.bump(tx, agent_id)

        await self._world.database.transact(write)
        self._reload_agents((agent_id,))

    async def close_all(self, agent_id: AgentId) -> list[str]:
        """Closes every open file; returns their names. Raises NotFound."""

        def write(tx: Tx) -> list[str]:
            agents.owned(tx, self._organization, agent_id)
            opened = views.of_open(tx, agent_id)
            views.close(tx, agent_id, [view.file.id for view in opened])
            agents.bump(tx, agent_id)
            return sorted(view.name for view in opened)

        closed = await self._world.database.transact(write)
        self._reload_agents((agent_id,))
        return closed

    def _require(self, tx: Tx, agent_id: AgentId, file_id: FileId) -> None:
        if views.find(tx, agent_id, file_id) is None:
            raise NotFound("File", file_id)
