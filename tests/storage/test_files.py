"""Files as rows: which uploads are still to be read after a restart."""

from kelpie.core.files.files import File, FileStatus
from kelpie.core.files.folders import Folder
from kelpie.core.ids import FileId, FolderId
from kelpie.storage.files import files, folders
from kelpie.world.sqlite.connections import memory_connection
from tests.new_database import create_schema


def test_an_upload_is_kept_until_it_is_read_whatever_its_file_waits_for() -> None:
    """Files of an import are pending until they are read, those of an upload are parsing."""
    folder = Folder(FolderId("source-00000000-0000-4000-8000-000000000001"), "shelf", 1, 1)
    with memory_connection() as tx:
        create_schema(tx)
        folders.insert(tx, folder)
        ids: dict[FileStatus, FileId] = {}
        for number, status in enumerate(FileStatus):
            ids[status] = FileId(f"file-00000000-0000-4000-8000-{number:012}")
            name = f"{status.value}.txt"
            files.insert(tx, File(ids[status], folder.id, name, name, "text/plain", 1, 1, 1, status))
        unread = files.unread(tx, [*ids.values(), "file-unknown"])
    assert unread == {ids[FileStatus.pending], ids[FileStatus.parsing]}


def test_the_file_that_waits_longest_is_next_and_every_step_puts_it_at_the_end() -> None:
    folder = Folder(FolderId("source-00000000-0000-4000-8000-000000000001"), "shelf", 1, 1)
    ids = [FileId(f"file-00000000-0000-4000-8000-{number:012}") for number in range(2)]
    with memory_connection() as tx:
        create_schema(tx)
        folders.insert(tx, folder)
        for at, file_id in enumerate(ids, 1):
            name = f"{at}.txt"
            files.insert(tx, File(file_id, folder.id, name, name, "text/plain", 1, at, at, FileStatus.embedding))

        def next_one() -> FileId | None:
            found = files.next_of(tx, folder.organization_id, (FileStatus.embedding,))
            return None if found is None else found.id

        order: list[FileId | None] = []
        for now in range(10, 14):
            order.append(next_one())
            files.change(tx, ids[(now - 10) % 2], {"indexed": now}, now)
        assert order == [*ids, *ids]
        assert files.waiting(tx, (FileStatus.embedding,)) == {folder.organization_id: 12}
        files.change(tx, ids[0], {"status": FileStatus.completed.value}, 20)
        assert next_one() == ids[1]
        assert files.next_of(tx, "org-of-others", (FileStatus.embedding,)) is None
