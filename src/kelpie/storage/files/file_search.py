"""Search in the files of an agent's folders: by words, by meaning, or by both, with the passages around each match.

The folders of the agent are a condition in SQL, and so is that a file is completed: one that is being processed, or
deleted, is found by nobody, however much of it is in the index already.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from kelpie.core.files.files import FilePassage, full_name
from kelpie.core.ids import AgentId, FileId
from kelpie.core.search_hits import Hit, SearchMode
from kelpie.search import items, vector_rows
from kelpie.search.item_lookup import ITEM_ID, Only, listed
from kelpie.search.queries import NOTHING_NEAR, ItemQuery, NearestItems, NearItems
from kelpie.search.vector_rows import Vector
from kelpie.storage.files import passages
from kelpie.storage.tables import agent_folders, file_passages, files, folders
from kelpie.world.database import Tx

_FOLDERS = (
    sa.select(agent_folders.c.folder_id)
    .join(folders, folders.c.id == agent_folders.c.folder_id)
    .where(agent_folders.c.agent_id == sa.bindparam("of_agent"), folders.c.removed.is_(False))
)
_COMPLETED = (files.c.status == "completed", files.c.removed.is_(False))
_FINDABLE = sa.exists(
    sa.select(sa.literal(1))
    .select_from(file_passages.join(files, files.c.id == file_passages.c.file_id))
    .where(file_passages.c.id == ITEM_ID, *_COMPLETED)
)
_UNFINISHED = (
    sa.select(files.c.id)
    .where(files.c.folder_id.in_(_FOLDERS), (files.c.status != "completed") | files.c.removed.is_(True))
    .limit(1)
)
_THESE = (
    sa.select(file_passages, files.c.name.label("file_name"), folders.c.name.label("folder_name"))
    .join(files, files.c.id == file_passages.c.file_id)
    .join(folders, folders.c.id == files.c.folder_id)
    .where(file_passages.c.id.in_(listed("ids")), files.c.folder_id.in_(_FOLDERS), *_COMPLETED)
)


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A search in files."""

    text: str
    limit: int = 5
    mode: SearchMode = "hybrid"


@dataclass(frozen=True, slots=True)
class FoundFilePassage:
    """A passage that was found, and the name of its file with that of its folder."""

    passage: FilePassage
    file_name: str
    hit: Hit

    @property
    def file_id(self) -> FileId:
        return self.passage.file_id


def models(tx: Tx, agent_id: AgentId) -> dict[str, str]:
    """The folders of an agent that can be searched by meaning, with the model that each is searched by."""
    scopes: Sequence[str] = list(tx.execute(_FOLDERS, {"of_agent": agent_id}).scalars())
    return vector_rows.models_of(tx, "file_passage", scopes) if scopes else {}


def nearest(
    tx: Tx,
    finder: NearestItems,
    agent_id: AgentId,
    scopes: Mapping[str, str],
    query: FileQuery,
    meanings: Mapping[str, Vector],
) -> NearItems:
    """The passages nearest in meaning; whether they may be found is checked again when they are looked up."""
    bound = {"of_agent": agent_id}
    unfinished = tx.execute(_UNFINISHED, bound).first() is not None
    only = Only(_FINDABLE) if unfinished else None
    wanted = ItemQuery(query.text, query.limit, query.mode, meanings=meanings)
    return items.nearest(tx, finder, "file_passage", scopes, wanted, only)


def search(tx: Tx, agent_id: AgentId, query: FileQuery, near: NearItems = NOTHING_NEAR) -> list[FoundFilePassage]:
    """The best passages, best first."""
    bound = {"of_agent": agent_id}
    wanted = ItemQuery(query.text, query.limit, query.mode)
    hits = items.find(tx, "file_passage", None, wanted, Only(_FINDABLE, bound, _FOLDERS), near)
    if not hits:
        return []
    rows = {row.id: row for row in tx.execute(_THESE, {**bound, "ids": json.dumps([hit.id for hit in hits])})}
    return [
        FoundFilePassage(
            passages.from_row(rows[hit.id]), full_name(rows[hit.id].folder_name, rows[hit.id].file_name), hit
        )
        for hit in hits
        if hit.id in rows
    ]
