"""Folders of agents: attached and detached, and with them the file tools. Both change the agent's version."""

from collections.abc import Sequence

import sqlalchemy as sa

from kelpie.core.errors import Conflict, InvalidInput
from kelpie.core.files.folders import FOLDERS_MAX, Folder
from kelpie.core.ids import AgentId, FolderId, OrganizationId, ToolId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.agents import agents as agent_rows
from kelpie.storage.files import folders as folder_rows
from kelpie.storage.files import views
from kelpie.storage.rows import paging
from kelpie.storage.tables import agent_folders, agent_tools, agents, file_views, files, folders
from kelpie.storage.tools import tools
from kelpie.storage.tools.by_name import by_names
from kelpie.world.database import Tx

FILE_TOOLS = ("grep_files", "open_files", "semantic_search_files")

_A = agent_folders.c
_OF_AGENT = (
    sa.select(folders)
    .join(agent_folders, _A.folder_id == folders.c.id)
    .where(_A.agent_id == sa.bindparam("of_agent"), folders.c.removed.is_(False))
)
_ORDERED = _OF_AGENT.order_by(folders.c.created_at, folders.c.id)
_IDS = sa.select(_A.folder_id).where(_A.agent_id == sa.bindparam("of_agent"))
_ATTACH = sa.insert(agent_folders)
_OF_BOTH = (_A.agent_id == sa.bindparam("of_agent")) & (_A.folder_id == sa.bindparam("of_folder"))
_DETACH = sa.delete(agent_folders).where(_OF_BOTH)
_CLOSE = sa.delete(file_views).where(
    file_views.c.agent_id == sa.bindparam("of_agent"),
    file_views.c.file_id.in_(sa.select(files.c.id).where(files.c.folder_id == sa.bindparam("of_folder"))),
)
_USERS = (
    sa.select(agents.c.id)
    .join(agent_folders, _A.agent_id == agents.c.id)
    .where(_A.folder_id == sa.bindparam("of_folder"), agents.c.organization_id == sa.bindparam("of_organization"))
)


def of_agent(tx: Tx, agent_id: AgentId) -> list[Folder]:
    """The folders of an agent, oldest first."""
    return [folder_rows.from_row(row) for row in tx.execute(_ORDERED, {"of_agent": agent_id})]


_OF_AGENTS = (
    sa.select(_A.agent_id, folders)
    .join(folders, _A.folder_id == folders.c.id)
    .where(_A.agent_id.in_(sa.bindparam("ids", expanding=True)), folders.c.removed.is_(False))
    .order_by(folders.c.created_at, folders.c.id)
)


def of_agents(tx: Tx, ids: Sequence[AgentId]) -> dict[str, list[Folder]]:
    """The folders of several agents, oldest first, by agent."""
    found: dict[str, list[Folder]] = {}
    for row in tx.execute(_OF_AGENTS, {"ids": list(ids)}):
        found.setdefault(row.agent_id, []).append(folder_rows.from_row(row))
    return found


def page_of_agent(tx: Tx, organization: OrganizationId, agent_id: AgentId, page: Page) -> list[Folder]:
    """The folders of an agent on a page."""
    rows = paging.page(tx, _OF_AGENT, folders, page, {"of_agent": agent_id}, within={"organization_id": organization})
    return [folder_rows.from_row(row) for row in rows]


def agents_page(tx: Tx, organization: OrganizationId, folder_id: FolderId, page: Page) -> list[AgentId]:
    """The agents that use a folder, on a page."""
    bound = {"of_folder": folder_id, "of_organization": organization}
    rows = paging.page(tx, _USERS, agents, page, bound, within={"organization_id": organization})
    return [AgentId(row[0]) for row in rows]


def users(tx: Tx, organization: OrganizationId, folder_id: FolderId) -> tuple[AgentId, ...]:
    """All agents that use a folder."""
    bound = {"of_folder": folder_id, "of_organization": organization}
    return tuple(AgentId(each) for each in tx.execute(_USERS.order_by(agents.c.id), bound).scalars())


def attach(tx: Tx, organization: OrganizationId, agent_id: AgentId, folder_id: FolderId, now: Micros) -> bool:
    """Lets an agent read a folder: opens its newest files, as many as the agent may have open, and gives the agent the
    file tools with its first folder. False if the agent has it already.

    Raises InvalidInput when the agent has too many folders.
    """
    there = set(tx.execute(_IDS, {"of_agent": agent_id}).scalars())
    if folder_id in there:
        return False
    if len(there) >= FOLDERS_MAX:
        raise InvalidInput("folder_id", f"the agent has {len(there)} folders, which is the limit; detach one first")
    tx.execute(_ATTACH, {"agent_id": agent_id, "folder_id": folder_id, "attached_at": now})
    if not there:
        give_tools(tx, organization, agent_id)
    views.open_folder(tx, agent_rows.get(tx, agent_id), folder_id, now)
    agent_rows.touch(tx, agent_id, now)
    return True


def give_tools(tx: Tx, organization: OrganizationId, agent_id: AgentId) -> None:
    """Attaches the file tools of the organization that the agent lacks."""
    found = by_names(tx, organization, FILE_TOOLS)
    for name in FILE_TOOLS:
        if name in found:
            tools.attach(tx, agent_id, found[name].id)


def detach(tx: Tx, organization: OrganizationId, agent_id: AgentId, folder_id: FolderId, now: Micros) -> bool:
    """Takes a folder with its files from an agent, and the file tools with the last one. False if it has it not."""
    bound = {"of_agent": agent_id, "of_folder": folder_id}
    if tx.execute(_DETACH, bound).rowcount == 0:
        return False
    tx.execute(_CLOSE, bound)
    if not tx.execute(_IDS, {"of_agent": agent_id}).first():
        for tool in by_names(tx, organization, FILE_TOOLS).values():
            tools.detach(tx, agent_id, tool.id)
    agent_rows.touch(tx, agent_id, now)
    return True


def require_all(tx: Tx, organization: OrganizationId, ids: Sequence[FolderId]) -> None:
    """Raises Conflict for a folder that does not exist."""
    there = folder_rows.get_many(tx, organization, ids)
    if missing := next((each for each in ids if each not in there), None):
        raise Conflict(f"{folder_rows.WHAT} not found with id='{missing}'; an agent can only have folders that exist")


def replace(tx: Tx, organization: OrganizationId, agent_id: AgentId, wanted: Sequence[FolderId], now: Micros) -> None:
    """Makes these the folders of an agent. Raises Conflict for one that does not exist, and InvalidInput."""
    require_all(tx, organization, wanted)
    for folder in of_agent(tx, agent_id):
        if folder.id not in wanted:
            detach(tx, organization, agent_id, folder.id, now)
    for folder_id in dict.fromkeys(wanted):
        attach(tx, organization, agent_id, folder_id, now)


# --- a folder that is deleted -----------------------------------------------------------------------------------------

_THEIRS = sa.select(_A.agent_id).where(_A.folder_id == sa.bindparam("of_folder"))
_others = agent_folders.alias("others")
_LAST = _THEIRS.where(
    ~sa.exists().where(_others.c.agent_id == _A.agent_id, _others.c.folder_id != sa.bindparam("of_folder"))
)
_DROP_TOOLS = sa.delete(agent_tools).where(
    agent_tools.c.tool_id.in_(sa.bindparam("tool_ids", expanding=True)), agent_tools.c.agent_id.in_(_LAST)
)
_BUMP = sa.update(agents).where(agents.c.id.in_(_THEIRS)).values(version=agents.c.version + 1)
_DETACH_ALL = sa.delete(agent_folders).where(_A.folder_id == sa.bindparam("of_folder"))


def detach_all(tx: Tx, organization: OrganizationId, folder_id: FolderId) -> tuple[AgentId, ...]:
    """Takes a folder from every agent; returns the agents. A few statements, however many agents there are."""
    found = users(tx, organization, folder_id)
    if not found:
        return ()
    bound = {"of_folder": folder_id}
    ids: list[ToolId] = [tool.id for tool in by_names(tx, organization, FILE_TOOLS).values()]
    if ids:
        tx.execute(_DROP_TOOLS, {**bound, "tool_ids": ids})
    tx.execute(_BUMP, bound)
    tx.execute(_DETACH_ALL, bound)
    return found
