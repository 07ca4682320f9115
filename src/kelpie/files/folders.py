"""Folders API: folders, uploads into them, and their files as clients see them.

An upload is on the disk before its row is committed, and is read in the background (`processing`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import CallerError, CommitUnknown, InvalidInput, KelpieError, NotFound
from kelpie.core.files.file_names import checked_name, free_name
from kelpie.core.files.file_types import FileType, file_type
from kelpie.core.files.files import DuplicateHandling, File, FilePassage, FileStatus
from kelpie.core.files.folders import Folder, NewFolder
from kelpie.core.ids import AgentId, FileId, FolderId
from kelpie.core.paging import Page
from kelpie.llm.routing.models import Models
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.text_edits import cleaned
from kelpie.search import vector_rows
from kelpie.storage.agents import agents
from kelpie.storage.files import attachments, files, folder_passages, folders, passages, removal
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.world.database import Tx
from kelpie.world.files.uploads import Upload
from kelpie.world.world import World

VECTORS_MAX = 200  # per answer
CONTENT_CHARS_MAX = 16 * 1024 * 1024  # of all files of a list together
Reload = Callable[[Iterable[AgentId]], None]


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """The file that an upload made, or the one that was there before; `skipped` is true for that."""

    file: File
    folder: Folder
    skipped: bool = False


class Folders:
    """Folders and files of the caller's organization. `wake` starts the processing of a new file."""

    def __init__(
        self,
        world: World,
        models: Models,
        embeddings: Embeddings,
        reload_agents: Reload,
        wake: Callable[[], None],
        piece_size: PieceSize,
        caller: Caller = DEFAULT_CALLER,
    ) -> None:
        self._world = world
        self._models = models
        self._embeddings = embeddings
        self._reload_agents = reload_agents
        self._wake = wake
        self._piece_size = piece_size
        self._user = caller.user_id
        self._organization = caller.organization_id

    # --- folders ---------------------------------------------------------------------------------------------------

    async def create(self, new: NewFolder) -> Folder:
        """Makes a folder; without a model of its own it gets the server's. Raises InvalidInput, Conflict for a name
        that is used, and ModelError."""
        embedding = await self._embedding(new.embedding) or await self._embeddings.default()
        now = self._world.clock.now()
        folder = Folder(
            id=self._world.ids.new(FolderId),
            name=checked_name("name", new.name),
            created_at=now,
            updated_at=now,
            description=_cleaned(new.description),
            instructions=_cleaned(new.instructions),
            embedding=embedding,
            embedding_chunk_size=new.embedding_chunk_size,
            metadata=new.metadata,
            organization_id=self._organization,
            created_by_id=self._user,
            last_updated_by_id=self._user,
        )
        await self._world.database.transact(lambda tx: folders.insert(tx, folder))
        return folder

    async def _embedding(self, handle: str | None) -> str | None:
        """The handle as its provider lists it. Raises InvalidInput for a model that is not known, and ModelError."""
        if handle is None:
            return None
        try:
            return (await self._models.resolve_embedding(handle)).handle
        except NotFound:
            raise InvalidInput("embedding", f"Embedding model {handle[:200]} not found") from None

    async def default_embedding(self) -> str | None:
        """The embedding model of folders that name none; None if the server has none."""
        return await self._embeddings.default()

    async def get(self, folder_id: FolderId) -> Folder:
        """Raises NotFound."""
        return await self._world.database.read(lambda tx: folders.get(tx, self._organization, folder_id))

    async def by_name(self, name: str) -> Folder:
        """Raises NotFound."""
        found = await self._world.database.read(lambda tx: folders.by_name(tx, self._organization, name))
        if found is None:
            raise NotFound(folders.WHAT, name[:200])
        return found

    async def page(self, page: Page, name: str | None = None) -> list[Folder]:
        """Raises NotFound for an unknown cursor, InvalidInput for a page that cannot be."""
        return await self._world.database.read(lambda tx: folders.select(tx, self._organization, page, name))

    async def count(self) -> int:
        """Number of folders."""
        return await self._world.database.read(lambda tx: folders.count(tx, self._organization))

    async def sizes(self) -> list[tuple[str, str, int, int]]:
        """Of each folder its id, its name, the number of its files and their bytes."""
        return await self._world.database.read(lambda tx: folders.sizes(tx, self._organization))

    async def update(self, folder_id: FolderId, changes: Mapping[str, Any]) -> Folder:
        """Changes fields by name; agents that have the folder see it. Raises NotFound, InvalidInput, Conflict."""
        values = {name: cleaned(value) if isinstance(value, str) else value for name, value in changes.items()}
        if values.get("name") is not None:
            values["name"] = checked_name("name", values["name"])
        if values.get("embedding") is not None:
            values["embedding"] = await self._embedding(values["embedding"])
        now = self._world.clock.now()

        def write(tx: Tx) -> tuple[Folder, tuple[AgentId, ...]]:
            after = folders.update(tx, self._organization, folder_id, values, now, self._user)
            return after, agents.bump_many(tx, attachments.users(tx, self._organization, folder_id))

        after, touched = await self._world.database.transact(write)
        self._reload_agents(touched)
        return after

    async def delete(self, folder_id: FolderId) -> None:
        """Removes a folder with its files from all agents; its rows are deleted in the background. Raises NotFound."""

        def write(tx: Tx) -> tuple[tuple[AgentId, ...], list[FileId]]:
            waiting = files.unread_of(tx, folder_id)
            return removal.delete_folder(tx, self._organization, folder_id), waiting

        touched, waiting = await self._world.database.transact(write)
        self._reload_agents(touched)
        for file_id in waiting:
            await self._world.uploads.discard(file_id)

    async def agents_of(self, folder_id: FolderId, page: Page) -> list[AgentId]:
        """The agents that have a folder. Raises NotFound."""

        def read(tx: Tx) -> list[AgentId]:
            folders.require(tx, self._organization, folder_id)
            return attachments.agents_page(tx, self._organization, folder_id, page)

        return await self._world.database.read(read)

    # --- files -----------------------------------------------------------------------------------------------------

    def checked(self, name: str | None, filename: str | None, media_type: str | None) -> tuple[str, FileType]:
        """The name and type of an upload. Raises InvalidInput, UnsupportedType."""
        if name is None and filename is None:
            raise InvalidInput("file", "has no name; send it with a filename, or name it with the parameter 'name'")
        wanted = checked_name("name", name) if name is not None else checked_name("filename", filename or "")
        return wanted, file_type(wanted, media_type)

    async def upload(
        self, folder_id: FolderId, upload: Upload, name: str, kind: FileType, handling: DuplicateHandling
    ) -> UploadedFile:
        """Keeps an upload as a file of a folder, to be processed. Raises NotFound, and CallerError for a duplicate that
        is not wanted."""
        now, ids = self._world.clock.now(), self._world.ids
        file = File(
            id=ids.new(FileId),
            folder_id=folder_id,
            name=name,
            original_name=name,
            media_type=kind.media_type,
            size=upload.size,
            created_at=now,
            updated_at=now,
            status=FileStatus.parsing,
            organization_id=self._organization,
            created_by_id=self._user,
        )
        before = await self._world.database.read(lambda tx: self._duplicate(tx, file, handling))
        if before is not None and handling is DuplicateHandling.skip:
            return UploadedFile(before, await self.get(folder_id), skipped=True)
        await self._world.uploads.keep(upload, file.id)
        try:
            stored, folder, touched, old = await self._world.database.transact(
                lambda tx: self._insert(tx, file, handling)
            )
        except CommitUnknown:
            raise
        except KelpieError:
            await self._world.uploads.discard(file.id)  # nothing was stored, and nothing will read it
            raise
        finally:
            self._wake()  # of a commit whose outcome is unknown as well
        self._reload_agents(touched)
        if stored.id != file.id:  # another upload was faster
            await self._world.uploads.discard(file.id)
        if old is not None:  # perhaps it was not read yet
            await self._world.uploads.discard(old)
        return UploadedFile(stored, folder, skipped=stored.id != file.id)

    def _duplicate(self, tx: Tx, file: File, handling: DuplicateHandling) -> File | None:
        """The newest file that was uploaded under the same name. Raises NotFound, CallerError."""
        folder = folders.get(tx, self._organization, file.folder_id)
        found = files.with_original_name(tx, file.folder_id, file.original_name)
        if found is not None and handling is DuplicateHandling.error:
            raise CallerError(f"File '{file.original_name}' already exists in folder '{folder.name}'")
        return found

    def _insert(
        self, tx: Tx, file: File, handling: DuplicateHandling
    ) -> tuple[File, Folder, tuple[AgentId, ...], FileId | None]:
        """The file, its folder, the agents that must reload, and the file that it replaces."""
        found, touched, old = self._duplicate(tx, file, handling), (), None
        folder = folders.get(tx, self._organization, file.folder_id)
        if found is not None and handling is DuplicateHandling.skip:
            return found, folder, (), None
        if found is not None and handling is DuplicateHandling.replacing:
            old = (files.named(tx, file.folder_id, file.name) or found).id
            touched = removal.delete_file(tx, self._organization, old, None, self._piece_size.rows)
        name = free_name(file.name, files.names_taken(tx, file.folder_id, file.name))
        made = replace(file, name=name)
        files.insert(tx, made)
        return made, folder, touched, old

    async def file(self, file_id: FileId, folder_id: FolderId | None = None) -> File:
        """Raises NotFound."""

        def read(tx: Tx) -> File:
            return self._counted(tx, [files.get(tx, self._organization, file_id, folder_id)])[0]

        return await self._world.database.read(read)

    async def files(self, folder_id: FolderId, page: Page) -> list[File]:
        """The files of a folder on a page; none for an unknown folder."""

        def read(tx: Tx) -> list[File]:
            return self._counted(tx, files.select(tx, self._organization, folder_id, page))

        return await self._world.database.read(read)

    def _counted(self, tx: Tx, found: list[File]) -> list[File]:
        """The files with the vectors that were added after they were completed."""
        lacking = [each.id for each in found if each.passages and each.embedded < each.passages and _is_done(each)]
        since = files.embedded_since(tx, lacking)
        return [replace(each, embedded=max(each.embedded, since.get(each.id, 0))) for each in found]

    async def content(self, file_id: FileId, chars_max: int = CONTENT_CHARS_MAX) -> str:
        """The text of a file; of a file that is not completed, nothing. Raises NotFound."""

        def read(tx: Tx) -> str:
            found = files.get(tx, self._organization, file_id)
            return passages.text(tx, found.id, chars_max) if _is_done(found) else ""

        return await self._world.database.read(read)

    async def passages(self, folder_id: FolderId, page: Page) -> list[tuple[FilePassage, File]]:
        """The passages of a folder's files on a page, each with its file."""
        return await self._world.database.read(
            lambda tx: folder_passages.page_of(tx, self._organization, folder_id, page)
        )

    async def vectors(self, ids: Iterable[str]) -> Mapping[str, bytes]:
        """The vectors of passages as 32-bit floats, by passage; of a limited number of them."""
        some = list(ids)[:VECTORS_MAX]
        return await self._world.database.read(lambda tx: vector_rows.values_of(tx, "file_passage", some))

    async def delete_file(self, file_id: FileId, folder_id: FolderId | None = None) -> None:
        """Removes a file, also one that is being processed; of a large one the rest is swept up later.
        Raises NotFound."""
        rows = self._piece_size.rows
        touched = await self._world.database.transact(
            lambda tx: removal.delete_file(tx, self._organization, file_id, folder_id, rows)
        )
        self._reload_agents(touched)
        await self._world.uploads.discard(file_id)


def _is_done(file: File) -> bool:
    return file.status is FileStatus.completed


def _cleaned(text: str | None) -> str | None:
    return None if text is None else cleaned(text)
