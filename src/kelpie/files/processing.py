"""Processing of uploaded files in the background: reading, then indexing, in small steps that a crash may interrupt.

What is left to do is in the database, and the upload is on the disk until its text is stored. A file can be found only
when all of it is indexed: one small transaction completes it. Organizations, and their files, take turns, so that no
large file keeps another waiting for longer than a step takes.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.actors.periodic import PeriodicWorker
from kelpie.core.errors import KelpieError, QuotaExceeded, StorageError
from kelpie.core.files.files import File, FilePassage, FileStatus
from kelpie.core.ids import AgentId, FileId
from kelpie.core.settings.settings import Settings
from kelpie.files import parsing
from kelpie.files.parsing import FileUnreadable, ParsedFile
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.search import vector_rows
from kelpie.storage.archives import embedding_models
from kelpie.storage.files import files, opening, passages
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.world.database import Tx
from kelpie.world.long_writes import PAUSE_S_MAX, write_piece
from kelpie.world.world import World

ATTEMPTS_MAX = 5  # to read a file whose reading was cut off
INDEXED_PIECE = 16  # passages that are embedded and indexed in one transaction
STEP_PIECES = 4  # of them, before another file has its turn
LOOK_EVERY_S = 30.0  # without being woken
RETRY_S = 5.0

_log = logs.get("files")

Reload = Callable[[Iterable[AgentId]], None]


@dataclass(slots=True)
class _Turns:
    """The organization that was served longest ago comes first."""

    served: dict[str, int] = field(default_factory=dict[str, int])
    count: int = 0

    def next(self, waiting: dict[str, int]) -> str:
        """The organization whose turn it is, of those that wait."""
        self.served = {each: at for each, at in self.served.items() if each in waiting}
        chosen = min(sorted(waiting), key=lambda each: (self.served.get(each, 0), waiting[each]))
        self.count += 1
        self.served[chosen] = self.count
        return chosen


class FileProcessing:
    """The work on the files of one server: one worker reads, another one indexes."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        embeddings: Embeddings,
        quotas: Quotas,
        reload_agents: Reload,
        piece_size: PieceSize,
    ) -> None:
        self._world = world
        self._settings = settings
        self._embeddings = embeddings
        self._quotas = quotas
        self._reload_agents = reload_agents
        self._piece_size = piece_size
        self._reading = PeriodicWorker(self._read_next, failed=_report, retry_s=RETRY_S)
        self._indexing = PeriodicWorker(self._index_next, failed=_report, retry_s=RETRY_S)
        self._read_turns, self._index_turns = _Turns(), _Turns()

    def wake(self) -> None:
        """Looks for files now: one was uploaded or imported."""
        self._reading.wake()
        self._indexing.wake()

    async def read_files(self) -> None:
        """Never returns."""
        await self._reading.run()

    async def index_files(self) -> None:
        """Never returns."""
        await self._indexing.run()

    async def drop_orphans(self) -> None:
        """Removes uploads whose row was not written before a crash, or that are done with. Call it before the server
        accepts requests: an upload is kept before its row is written."""
        uploads = self._world.uploads
        try:
            names = await uploads.names()
            there = await self._world.database.read(partial(files.unread, ids=names))
            for name in names:
                if name not in there:
                    await uploads.discard(name)
        except StorageError as error:
            _report(error)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def _read_next(self) -> float:
        file = await self._next(self._read_turns, (FileStatus.pending, FileStatus.parsing))
        if file is None:
            return LOOK_EVERY_S
        try:
            await self._read(file)
        except FileUnreadable as error:
            await self._fail(file, str(error))
        except QuotaExceeded as error:
            await self._fail(file, str(error))
        self._indexing.wake()
        return 0

    async def _next(self, turns: _Turns, statuses: Collection[FileStatus]) -> File | None:
        def read(tx: Tx) -> File | None:
            waiting = files.waiting(tx, statuses)
            return files.next_of(tx, turns.next(waiting), statuses) if waiting else None

        return await self._world.database.read(read)

    async def _read(self, file: File) -> None:
        """Raises FileUnreadable, QuotaExceeded, and what may be tried again."""
        database, now = self._world.database, self._world.clock.now()
        if file.attempts >= ATTEMPTS_MAX:
            raise FileUnreadable(
                f"The file could not be read: it was interrupted {file.attempts} times. Upload it again."
            )
        if not await database.transact(partial(files.change, file_id=file.id, values=_begun(file), now=now)):
            return await self._world.uploads.discard(file.id)
        upload = await self._world.uploads.kept(file.id)
        if upload is None:
            raise FileUnreadable("The file could not be read: its upload was lost. Upload it again.")
        while await write_piece(database, partial(_drop_some, file_id=file.id, rows=self._piece_size.rows)):
            pass  # of an earlier attempt
        tokens = await database.read(partial(files.chunk_size, folder_id=file.folder_id))
        parsed = await parsing.parse(self._world.workers, self._settings, file, upload, tokens)
        await self._store(file, parsed)
        await self._world.uploads.discard(file.id)
        return None

    async def _store(self, file: File, parsed: ParsedFile) -> None:
        """Writes the passages, for nobody to find yet; after them the file waits to be indexed."""
        database, rows = self._world.database, self._piece_size.rows
        piece: list[FilePassage] = []
        for passage in parsed.passages():
            piece.append(passage)
            if len(piece) >= rows:
                if not await write_piece(database, partial(self._write, file=file, some=tuple(piece))):
                    return
                piece = []
        known = {"passages": parsed.count, "lines": parsed.lines, "chars": parsed.chars, "note": parsed.note or None}
        status = {"status": FileStatus.embedding.value, "indexed": 0, "embedded": 0, **known}
        now = self._world.clock.now()

        def finish(tx: Tx) -> None:
            if self._write(tx, file, piece):
                files.change(tx, file.id, status, now)

        await database.transact(finish)

    def _write(self, tx: Tx, file: File, some: Sequence[FilePassage]) -> bool:
        """False when the file was deleted meanwhile. Raises QuotaExceeded."""
        if files.find(tx, file.id) is None:
            return False
        self._quotas.require_bytes(tx, file.organization_id, sum(len(each.text.encode()) for each in some))
        passages.insert_many(tx, file.organization_id, some)
        return True

    async def _fail(self, file: File, why: str) -> None:
        """Ends the processing of a file. What was written of it is cleaned up later."""
        now, values = self._world.clock.now(), {"status": FileStatus.error.value, "error": why}
        await self._world.database.transact(partial(files.change, file_id=file.id, values=values, now=now))
        await self._world.uploads.discard(file.id)
        _log.warning("file_not_processed", "File could not be processed", file_id=file.id, why=why)

    # --- indexing --------------------------------------------------------------------------------------------------

    async def _index_next(self) -> float:
        await self._open_for_others()
        file = await self._next(self._index_turns, (FileStatus.embedding,))
        if file is None:
            return LOOK_EVERY_S
        for _ in range(STEP_PIECES):
            if not await self._index_piece(file.id):
                break
        return 0

    async def _open_for_others(self) -> None:
        """Opens completed files for the agents that did not fit into one transaction."""
        database, rows = self._world.database, self._piece_size.rows
        while await database.read(opening.is_needed):
            now = self._world.clock.now()
            # Agents are told before any pause: a model call that begins after the commit must not use older data.
            self._reload_agents(await database.transact(partial(opening.resume, rows=rows, now=now)))
            await asyncio.sleep(PAUSE_S_MAX)

    async def _index_piece(self, file_id: FileId) -> bool:
        """Indexes some passages, and completes the file with the last; False when nothing is left to do."""
        database, default = self._world.database, await self._embeddings.default()

        def read(tx: Tx) -> tuple[File | None, list[FilePassage], tuple[str | None, ...]]:
            file = files.find(tx, file_id)
            if file is None:
                return None, [], ()
            used = vector_rows.models_of(tx, "file_passage", (file.folder_id,)).get(file.folder_id)
            wanted = embedding_models.selected_for(tx, "file_passage", (file.folder_id,), default)
            return file, passages.some(tx, file_id, file.indexed, INDEXED_PIECE), (used, wanted.get(file.folder_id))

        file, some, models = await database.read(read)
        if file is None or file.status is not FileStatus.embedding:
            return False
        written = [each for each in some if each.text.strip()]
        found = await self._embeddings.of_backlog(models, [each.text for each in written], file.organization_id)
        embedded = sum(1 for each in written if found.vectors.get(each.text))
        now, is_last = self._world.clock.now(), file.indexed + len(some) >= (file.passages or 0)

        def write(tx: Tx) -> tuple[AgentId, ...]:
            there = files.find(tx, file_id)
            if there is None or there.indexed != file.indexed or there.status != file.status:
                return ()
            passages.index_many(tx, file.folder_id, written, found.vectors)
            blank = len(some) - len(written)
            status = FileStatus.completed if is_last else FileStatus.embedding
            values = {"indexed": file.indexed + len(some), "embedded": file.embedded + embedded + blank}
            files.change(tx, file_id, {**values, "status": status.value}, now)
            return opening.begin(tx, there, self._piece_size.rows, now) if is_last else ()

        self._reload_agents(await (database.transact(write) if is_last else write_piece(database, write)))
        if is_last:
            _log.info("file_processed", "File is processed", file_id=file_id, passages=file.passages)
        return not is_last


def _begun(file: File) -> dict[str, object]:
    return {"attempts": file.attempts + 1}


def _drop_some(tx: Tx, file_id: FileId, rows: int) -> int:
    return passages.drop_some(tx, file_id, rows, indexed=False)


def _report(error: KelpieError) -> None:
    _log.warning("file_processing_interrupted", "Processing of files was interrupted; trying again", error=str(error))
