"""Files of agents: which are open, which part of each is shown, and which must close when too many are open.

The caller changes the agent's version where a function here says that something changed: what is open is a part of the
prompt.
"""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from kelpie.core.agents.agent import Agent
from kelpie.core.files.files import Directory, FileView, file_of_view
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId, FileId, FolderId, OrganizationId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.files import files as file_rows
from kelpie.storage.files import passages
from kelpie.storage.rows import paging
from kelpie.storage.tables import agent_folders, file_views, files, folders
from kelpie.world.database import Tx

OPEN_DEFAULT, CHARS_DEFAULT = 5, 15_000  # of an agent without its own limits
LISTED_MAX = 500  # files of one folder in the prompt, besides the open ones

_V, _F = file_views.c, files.c
_MINE = (_V.agent_id == sa.bindparam("of_agent")) & (_V.file_id == _F.id)
_SEEN = (
    sa.select(
        files,
        folders.c.name.label("folder_name"),
        sa.func.coalesce(_V.is_open, sa.false()).label("is_open"),
        _V.accessed_at,
        _V.start_line,
        _V.end_line,
    )
    .join(folders, folders.c.id == _F.folder_id)
    .join(
        agent_folders,
        (agent_folders.c.folder_id == _F.folder_id) & (agent_folders.c.agent_id == sa.bindparam("of_agent")),
    )
    .outerjoin(file_views, _MINE)
    .where(_F.removed.is_(False), _F.status == "completed")
)
_OPEN = _SEEN.where(_V.is_open).order_by(_V.accessed_at, _F.id)
_CLOSED = (
    _SEEN.where(sa.func.coalesce(_V.is_open, sa.false()).is_(False), _F.folder_id == sa.bindparam("of_folder"))
    .order_by(_F.name)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_COUNT = (
    sa.select(_F.folder_id, sa.func.count())
    .where(
        _F.folder_id.in_(sa.bindparam("folder_ids", expanding=True)), _F.removed.is_(False), _F.status == "completed"
    )
    .group_by(_F.folder_id)
)
_ONE = _SEEN.where(_F.id == sa.bindparam("of_file"))
_NAMED = _SEEN.where(folders.c.name == sa.bindparam("folder"), _F.name == sa.bindparam("of_name"))


def _from_row(row: sa.Row[Any]) -> FileView:
    return FileView(
        file_rows.from_row(row), row.folder_name, bool(row.is_open), row.accessed_at, row.start_line, row.end_line
    )


def limits(agent: Agent) -> tuple[int, int]:
    """How many files the agent may have open, and how many characters of each it sees."""
    return agent.max_files_open or OPEN_DEFAULT, agent.per_file_view_window_char_limit or CHARS_DEFAULT


def with_text(tx: Tx, agent: Agent, view: FileView) -> FileView:
    """The view with the text that is shown, if the file is open."""
    if not view.is_open:
        return view
    return replace(view, visible=passages.visible(tx, view.file, view.start_line, view.end_line, limits(agent)[1]))


def directories(tx: Tx, agent: Agent, attached: Sequence[Folder]) -> tuple[Directory, ...]:
    """The folders of an agent as its prompt shows them, with the text of the open files. When a file was last used is
    left out: it changes with every search, and the prompt does not show it."""
    if not attached:
        return ()
    opened: dict[FolderId, list[FileView]] = {}
    for view in of_open(tx, agent.id):
        shown = replace(with_text(tx, agent, view), accessed_at=None)
        opened.setdefault(view.file.folder_id, []).append(shown)
    counts = {row[0]: int(row[1]) for row in tx.execute(_COUNT, {"folder_ids": [folder.id for folder in attached]})}
    made: list[Directory] = []
    for folder in attached:
        closed = tx.execute(_CLOSED, {"of_agent": agent.id, "of_folder": folder.id, "most": LISTED_MAX})
        listed = [*opened.get(folder.id, ()), *(replace(_from_row(row), accessed_at=None) for row in closed)]
        listed.sort(key=lambda view: view.file.name)
        made.append(Directory(folder, tuple(listed), max(0, counts.get(folder.id, 0) - len(listed))))
    return tuple(made)


def of_open(tx: Tx, agent_id: AgentId) -> list[FileView]:
    """The open files of an agent, the one that was not used for longest first."""
    return [_from_row(row) for row in tx.execute(_OPEN, {"of_agent": agent_id})]


def find(tx: Tx, agent_id: AgentId, file_id: FileId) -> FileView | None:
    """A file of the agent's folders; None when it is not there or not completed."""
    row = tx.execute(_ONE, {"of_agent": agent_id, "of_file": file_id}).first()
    return None if row is None else _from_row(row)


def named(tx: Tx, agent_id: AgentId, full_name: str) -> FileView | None:
    """A file of the agent's folders by its name with that of its folder."""
    folder, _, name = full_name.partition("/")
    row = tx.execute(_NAMED, {"of_agent": agent_id, "folder": folder, "of_name": name}).first()
    return None if row is None else _from_row(row)


def every(tx: Tx, agent_id: AgentId, most: int | None) -> list[FileView]:
    """The files of an agent's folders by name, at most so many, or all."""
    rows = tx.execute(_SEEN.order_by(folders.c.name, _F.name).limit(most), {"of_agent": agent_id})
    return [_from_row(row) for row in rows]


def shown(tx: Tx, agent: Agent) -> tuple[FileView, ...]:
    """The files of an agent by name, as many as a prompt lists of one folder, with the text of the open ones."""
    return tuple(with_text(tx, agent, view) for view in every(tx, agent.id, LISTED_MAX))


_IS_OPEN = _SEEN.where(_V.is_open)
_IS_CLOSED = _SEEN.where(sa.func.coalesce(_V.is_open, sa.false()).is_(False))


def page_of(
    tx: Tx, organization: OrganizationId, agent: Agent, page: Page, is_open: bool | None
) -> tuple[list[FileView], bool]:
    """The files of an agent on a page, with the text of the open ones, and whether others follow where it ends.
    Cursors are ids of views."""
    statement = _SEEN if is_open is None else _IS_OPEN if is_open else _IS_CLOSED
    after, before = (None if each is None else file_of_view(agent.id, each) for each in (page.after, page.before))
    within = {"organization_id": organization}
    wanted = paging.known(tx, files, replace(page, after=after, before=before), within)
    one_more = replace(wanted, limit=None if page.limit is None else page.limit + 1, bytes_max=None)
    rows = paging.page(tx, statement, files, one_more, {"of_agent": agent.id}, within=within)
    if more := page.limit is not None and len(rows) > page.limit:
        rows = rows[1:] if wanted.backwards else rows[:-1]
    return [with_text(tx, agent, _from_row(row)) for row in rows], more


# --- opening and closing ----------------------------------------------------------------------------------------------


@cache
def _put(dialect: str) -> Any:
    """The statement that writes a view; each dialect has its own, and only the one in use is imported."""
    put = importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert(file_views)
    changed = ("is_open", "accessed_at", "start_line", "end_line")
    return put.on_conflict_do_update(
        index_elements=["agent_id", "file_id"], set_={name: put.excluded[name] for name in changed}
    )


_CLOSE = (
    sa.update(file_views)
    .where(_V.agent_id == sa.bindparam("of_agent"), _V.file_id.in_(sa.bindparam("ids", expanding=True)))
    .values(is_open=False, start_line=None, end_line=None)
)
_USE = (
    sa.update(file_views)
    .where(_V.agent_id == sa.bindparam("of_agent"), _V.file_id.in_(sa.bindparam("ids", expanding=True)))
    .values(accessed_at=sa.bindparam("at"))
)


def open_file(
    tx: Tx, agent: Agent, file_id: FileId, at: Micros, start: int | None = None, end: int | None = None
) -> None:
    """Opens a file, or shows another part of it. `evict` must follow."""
    row = {"agent_id": agent.id, "file_id": file_id, "is_open": True, "accessed_at": at}
    tx.execute(_put(tx.dialect.name), [{**row, "start_line": start, "end_line": end}])


def evict(tx: Tx, agent: Agent, kept: Iterable[FileId] = ()) -> list[FileView]:
    """Closes the files that were not used for longest until no more are open than the agent may have; returns them.
    Those that are `kept` go last."""
    last = set(kept)
    opened = sorted(of_open(tx, agent.id), key=lambda view: view.file.id in last)  # stable: by age otherwise
    gone = opened[: max(0, len(opened) - limits(agent)[0])]
    close(tx, agent.id, [view.file.id for view in gone])
    return gone


def close(tx: Tx, agent_id: AgentId, ids: Sequence[FileId]) -> None:
    """Closes those of the files that are open."""
    if ids:
        tx.execute(_CLOSE, {"of_agent": agent_id, "ids": list(ids)})


def use(tx: Tx, agent_id: AgentId, ids: Sequence[FileId], at: Micros) -> None:
    """Notes that an agent has just used files, open or not."""
    if ids:
        tx.execute(_USE, {"of_agent": agent_id, "ids": list(ids), "at": at})


_DECIDED = sa.select(_V.is_open).where(_V.agent_id == sa.bindparam("of_agent"), _V.file_id == sa.bindparam("of_file"))


def is_decided(tx: Tx, agent_id: AgentId, file_id: FileId) -> bool:
    """True if somebody has decided whether the agent has this file open: an import brings that along."""
    return tx.execute(_DECIDED, {"of_agent": agent_id, "of_file": file_id}).first() is not None


_NEWEST = (
    sa.select(_F.id)
    .where(_F.folder_id == sa.bindparam("of_folder"), _F.removed.is_(False), _F.status == "completed")
    .order_by(_F.created_at.desc(), _F.id.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def open_folder(tx: Tx, agent: Agent, folder_id: FolderId, at: Micros) -> None:
    """Opens the newest files of a folder that was just attached, as many as the agent may have open."""
    most, _ = limits(agent)
    newest = list(tx.execute(_NEWEST, {"of_folder": folder_id, "most": most}).scalars())
    for file_id in newest:
        open_file(tx, agent, FileId(file_id), at)
    if newest:
        evict(tx, agent, map(FileId, newest))
