"""Planted bugs in archives, restores, files and the vectors of them.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from kelpie.agent.maintenance import memory_changes
from kelpie.core.files.files import DuplicateHandling
from kelpie.files.folders import Folders
from kelpie.files.processing import FileProcessing
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.checkpoints import archive as checkpoint_archive
from kelpie.storage.checkpoints import recall
from kelpie.storage.tables import agent_archives
from tests.sim.mutations import Mutation

_LINK = agent_archives.c
_USED = sa.select(_LINK.archive_id).where(_LINK.agent_id == sa.bindparam("of_agent"))


def an_archive_outlives_the_agent_it_was_made_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_removal, "_OWNED_ALONE", _USED.where(_LINK.archive_id == "none"))


def an_archive_that_another_agent_uses_goes_with_its_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_removal, "_OWNED_ALONE", _USED.where(_LINK.is_owner))


def an_archive_that_was_attached_goes_with_the_agent(patch: pytest.MonkeyPatch) -> None:
    others = agent_archives.alias("other_users")
    used = sa.exists().where(others.c.archive_id == _LINK.archive_id, others.c.agent_id != _LINK.agent_id)
    patch.setattr(archive_removal, "_OWNED_ALONE", _USED.where(~used))


def a_restore_changes_an_archive_that_others_use(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint_archive, "_OTHER_USERS", sa.select(sa.literal(0)))


def a_restore_never_changes_an_archive_that_others_use(patch: pytest.MonkeyPatch) -> None:
    original = checkpoint_archive.pieces
    patch.setattr(
        checkpoint_archive, "pieces", lambda tx, to, wanted: original(tx, replace(to, overwrite_shared=False), wanted)
    )


def conversations_outlive_a_restore_to_before_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recall, "_drop_thread", lambda tx, conversation: None)


def the_blocks_of_conversations_outlive_a_restore_to_before_them(patch: pytest.MonkeyPatch) -> None:
    original = recall.checkpoint_blocks.copies

    def copies(tx: Any, target: Any, conversation: str, wanted: Any) -> Any:
        return original(tx, target, conversation, wanted) if wanted else []

    patch.setattr(recall.checkpoint_blocks, "copies", copies)


def a_file_that_is_to_be_replaced_stays(patch: pytest.MonkeyPatch) -> None:
    original = Folders.upload

    async def upload(self: Any, folder_id: Any, sent: Any, name: str, kind: Any, handling: Any) -> Any:
        if handling is DuplicateHandling.replacing:
            handling = DuplicateHandling.skip
        return await original(self, folder_id, sent, name, kind, handling)

    patch.setattr(Folders, "upload", upload)


def an_upload_is_kept_after_it_was_read(patch: pytest.MonkeyPatch) -> None:
    original = FileProcessing._read  # pyright: ignore[reportPrivateUsage]

    async def stay(_: str) -> None:
        return

    async def read(self: Any, file: Any) -> None:
        world = self._world
        self._world = replace(world, uploads=SimpleNamespace(kept=world.uploads.kept, discard=stay))
        try:
            await original(self, file)
        finally:
            self._world = world

    patch.setattr(FileProcessing, "_read", read)


def other_agents_are_not_told_of_the_pieces_of_a_restore(patch: pytest.MonkeyPatch) -> None:
    original = memory_changes.write_piece

    async def write(database: Any, piece: Any, _: Any = None) -> Any:
        return await original(database, piece)

    patch.setattr(memory_changes, "write_piece", write)


_RECORDS, _RESTORES, _FILES = "records-under-storage-faults", "restores-of-memory", "file-uploads"
_WHOLE = "a restore is whole or not at all"

# As in tests/sim/mutations.py.
REMEMBERED = (
    Mutation(an_archive_outlives_the_agent_it_was_made_for, _RECORDS, 14, 60, "a passage is as its client was told"),
    Mutation(
        an_archive_that_another_agent_uses_goes_with_its_owner, _RECORDS, 4, 20, "a passage is as its client was told"
    ),
    Mutation(an_archive_that_was_attached_goes_with_the_agent, _RECORDS, 2, 24, "a record is as its client was told"),
    Mutation(a_restore_changes_an_archive_that_others_use, _RESTORES, 5, 24, _WHOLE),
    Mutation(a_restore_never_changes_an_archive_that_others_use, _RESTORES, 6, 30, _WHOLE),
    Mutation(conversations_outlive_a_restore_to_before_them, _RESTORES, 0, 10, _WHOLE),
    Mutation(the_blocks_of_conversations_outlive_a_restore_to_before_them, _RESTORES, 0, 10, "nothing is left of what"),
    Mutation(
        other_agents_are_not_told_of_the_pieces_of_a_restore, _RESTORES, 900000, 60, "a live agent has what is stored"
    ),
    Mutation(a_file_that_is_to_be_replaced_stays, _FILES, 1, 10, "a file is found as a whole"),
    Mutation(an_upload_is_kept_after_it_was_read, _FILES, 2, 20, "no file is left half processed"),
)
