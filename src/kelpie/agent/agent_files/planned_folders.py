"""Folders and files of an import: made anew, unless the organization has the same folder with the same files.

The texts are kept on the disk before anything is written, and are indexed in the background like every upload.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kelpie.core.access.callers import Caller
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.agent_file import AgentFile, FileFolder, FolderFile, OpenFile
from kelpie.core.files.file_names import free_name
from kelpie.core.files.files import File, FileStatus
from kelpie.core.files.folders import Folder
from kelpie.core.ids import FileId, FolderId, OrganizationId
from kelpie.core.time import Micros
from kelpie.storage.files import attachments, files, folders, passages, views
from kelpie.world.database import Tx
from kelpie.world.files.uploads import Uploads
from kelpie.world.ids import Ids

PIECE_CHARS = 256 * 1024


@dataclass(frozen=True, slots=True)
class PlannedFolder:
    """A folder of the file, as it would be made, with its files and their texts."""

    reference: str
    folder: Folder
    files: tuple[tuple[FolderFile, File], ...]


@dataclass(frozen=True, slots=True)
class MadeFolders:
    """Folders and files by their references, and the files that were made for them."""

    folders: Mapping[str, FolderId]
    files: Mapping[str, FileId]
    made: frozenset[FileId]
    renamed: tuple[str, ...] = ()


def plan(
    file: AgentFile, ids: Ids, now: Micros, caller: Caller, embedding: Callable[[str | None], str | None]
) -> tuple[PlannedFolder, ...]:
    """The folders that agents of the file use. `embedding` gives the model that this server has for a handle."""
    used = {reference for agent in file.agents for reference in agent.folders}
    found: list[PlannedFolder] = []
    for number, folder in enumerate(each for each in file.folders if each.reference in used):
        row = _folder(folder, ids.new(FolderId), now + number, caller, embedding(folder.new.embedding))
        inside = [each for each in file.files if each.folder == folder.reference]
        taken: set[str] = set()
        made: list[tuple[FolderFile, File]] = []
        for at, each in enumerate(inside):
            name = free_name(each.name, taken)
            taken.add(name)
            made.append((each, _file(replace(each, name=name), ids.new(FileId), row, now + at, caller)))
        found.append(PlannedFolder(folder.reference, row, tuple(made)))
    return tuple(found)


def _folder(folder: FileFolder, folder_id: FolderId, at: Micros, caller: Caller, embedding: str | None) -> Folder:
    new = folder.new
    return Folder(
        id=folder_id,
        name=new.name,
        created_at=at,
        updated_at=at,
        description=new.description,
        instructions=new.instructions,
        embedding=embedding,
        embedding_chunk_size=new.embedding_chunk_size,
        metadata=new.metadata,
        organization_id=caller.organization_id,
        created_by_id=caller.user_id,
        last_updated_by_id=caller.user_id,
    )


def _file(each: FolderFile, file_id: FileId, folder: Folder, at: Micros, caller: Caller) -> File:
    return File(
        id=file_id,
        folder_id=folder.id,
        name=each.name,
        original_name=each.original_name,
        media_type=each.media_type,
        size=each.size,
        created_at=at,
        updated_at=at,
        status=FileStatus.pending,
        organization_id=caller.organization_id,
        created_by_id=caller.user_id,
    )


async def keep(uploads: Uploads, planned: Sequence[PlannedFolder]) -> None:
    """Keeps the texts of all files on the disk. Raises StorageError."""
    for folder in planned:
        for given, file in folder.files:
            async with uploads.receive(_pieces(given.text)) as upload:
                await uploads.keep(upload, file.id)


async def discard(uploads: Uploads, planned: Sequence[PlannedFolder], made: Iterable[FileId] = ()) -> None:
    """Removes the texts that were kept, except those of files that were made. Raises StorageError."""
    needed = set(made)
    for folder in planned:
        for _, file in folder.files:
            if file.id not in needed:
                await uploads.discard(file.id)


async def _pieces(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS].encode("utf-8", "replace")


def write(tx: Tx, organization: OrganizationId, planned: Sequence[PlannedFolder]) -> MadeFolders:
    """Makes the folders with their files, or finds those that are there already."""
    by_reference: dict[str, FolderId] = {}
    of_files: dict[str, FileId] = {}
    made: set[FileId] = set()
    renamed: list[str] = []
    for each in planned:
        there = folders.by_name(tx, organization, each.folder.name)
        same = None if there is None else _same_files(tx, there, each)
        if there is not None and same is not None:
            by_reference[each.reference] = there.id
            of_files |= same
            continue
        name = _free(tx, organization, each.folder.name)
        if name != each.folder.name:
            renamed.append(f"The folder {each.folder.name} has other files here; the imported one is called {name}.")
        folders.insert(tx, replace(each.folder, name=name))
        by_reference[each.reference] = each.folder.id
        for given, file in each.files:
            files.insert(tx, file)
            of_files[given.reference] = file.id
            made.add(file.id)
    return MadeFolders(by_reference, of_files, frozenset(made), tuple(renamed))


def _free(tx: Tx, organization: OrganizationId, name: str) -> str:
    taken: set[str] = set()
    while folders.by_name(tx, organization, wanted := free_name(name, taken)) is not None:
        taken.add(wanted)
    return wanted


def _same_files(tx: Tx, there: Folder, planned: PlannedFolder) -> dict[str, FileId] | None:
    """The files of a folder by reference, if each file of the import is there with the same text."""
    found: dict[str, FileId] = {}
    for given, file in planned.files:
        other = files.named(tx, there.id, file.name)
        text = given.text.replace("\r\n", "\n").replace("\r", "\n")
        if other is None or other.status is not FileStatus.completed or other.chars != len(text):
            return None
        if passages.text(tx, other.id) != text:
            return None
        found[given.reference] = other.id
    return found


def attach(
    tx: Tx, agent: Agent, references: Sequence[str], seen: Sequence[OpenFile], made: MadeFolders, now: Micros
) -> None:
    """Gives an imported agent its folders, with the files open that the file of the import has open."""
    for reference in references:
        if reference in made.folders:
            attachments.attach(tx, agent.organization_id, agent.id, made.folders[reference], now)
    known = [each for each in seen if each.file in made.files]
    for each in known:
        file_id = made.files[each.file]
        views.open_file(tx, agent, file_id, each.accessed_at or now, each.start_line, each.end_line)
    views.close(tx, agent.id, [made.files[each.file] for each in known if not each.is_open])
    views.evict(tx, agent)
