"""Archival memory in a checkpoint: the archive an agent uses, and the passages in it.

A passage that still exists unchanged is not touched and keeps its vectors; a rewritten one is found by its words at
once, and by meaning once it is embedded in the background. An archive that other agents use too is not changed, unless
the caller asks for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.errors import Conflict, Damaged, InvalidInput
from kelpie.core.ids import AgentId, ArchiveId, PassageId
from kelpie.core.memory.checkpoints import UnchangedItem
from kelpie.core.memory.passages import Passage
from kelpie.search import items
from kelpie.storage.archives import archives, passages
from kelpie.storage.archives import removal as archive_removal
from kelpie.storage.checkpoints.blocks import Target
from kelpie.storage.checkpoints.pieces import Piece, each_part, one, parts
from kelpie.storage.checkpoints.rows import columns_of, distinct, identifier, members, row, section, taken, texts
from kelpie.storage.rows.checksums import checksum
from kelpie.storage.tables import agent_archives
from kelpie.storage.tables import archives as archive_table
from kelpie.storage.tables import passages as passage_table
from kelpie.world.database import Tx

REMOVED, WRITTEN = 100, 50  # passages of one piece

_CHUNK = 500
_IN_ANOTHER = "a passage of the checkpoint is now in another archive; nothing was restored"
_ARCHIVE = columns_of(archive_table, "organization_id", "removed")
_PASSAGE = columns_of(passage_table, "organization_id", "archive_id", "checksum")
_STORED = (*_PASSAGE, "checksum")
_ALONE = {"batch_id": None, "position": None}  # documents of before passages had neighbours

_USED: sa.Select[Any] = (
    sa.select(*(archive_table.c[name] for name in _ARCHIVE), agent_archives.c.is_owner)
    .join(agent_archives, agent_archives.c.archive_id == archive_table.c.id)
    .where(agent_archives.c.agent_id == sa.bindparam("of_agent"))
)
_PASSAGES: sa.Select[Any] = (
    sa.select(*(passage_table.c[name] for name in _STORED))
    .where(passage_table.c.archive_id == sa.bindparam("of_archive"))
    .order_by(passage_table.c.created_at, passage_table.c.id)
)
_SIZE = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(passage_table.c.text)), 0)).where(
    passage_table.c.archive_id == sa.bindparam("of_archive")
)
_OTHER_USERS = (
    sa.select(sa.func.count())
    .select_from(agent_archives)
    .where(agent_archives.c.archive_id == sa.bindparam("of_archive"))
    .where(agent_archives.c.agent_id != sa.bindparam("of_agent"))
)
_STANDS = sa.select(archive_table.c.organization_id, archive_table.c.removed).where(
    archive_table.c.id == sa.bindparam("of_archive")
)
_RESTORE = (
    sa.update(archive_table)
    .where(archive_table.c.id == sa.bindparam("of_archive"))
    .values({name: sa.bindparam(f"new_{name}", type_=archive_table.c[name].type) for name in _ARCHIVE if name != "id"})
)
_INSERT = sa.insert(archive_table)
_ATTACH = sa.insert(agent_archives)
_ELSEWHERE = sa.select(passage_table.c.id).where(
    passage_table.c.id.in_(sa.bindparam("ids", expanding=True)),
    passage_table.c.archive_id != sa.bindparam("of_archive"),
)
_DROP = sa.delete(passage_table).where(passage_table.c.id.in_(sa.bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True)
class ArchiveSection:
    """The archive of a document, ready to be written."""

    row: Mapping[str, Any]
    is_owner: bool
    passages: tuple[Mapping[str, Any], ...]


def take(tx: Tx, agent_id: AgentId) -> dict[str, Any] | None:
    """The archive in the form of the document, or nothing. Raises Damaged: a damaged row must not be saved as if it
    were whole."""
    found = tx.execute(_USED, {"of_agent": agent_id}).first()
    if found is None:
        return None
    *values, is_owner = found
    (archive,) = taken(_ARCHIVE, [values])
    return {"is_owner": is_owner, "archive": archive, "passages": [_whole(each) for each in _there(tx, archive["id"])]}


def _there(tx: Tx, archive_id: str) -> list[dict[str, Any]]:
    return taken(_STORED, tx.execute(_PASSAGES, {"of_archive": archive_id}))


def _whole(stored: dict[str, Any]) -> dict[str, Any]:
    if stored["checksum"] not in (None, _checksum(stored)):
        raise Damaged("Passage", stored["id"])
    del stored["checksum"]
    return stored


def _checksum(values: Mapping[str, Any]) -> int:
    return checksum(values["text"], values["tags"], values["metadata"])


def size(tx: Tx, agent_id: AgentId) -> int:
    """Approximate number of characters."""
    archive_id = archives.archive_of(tx, agent_id)
    return 0 if archive_id is None else int(tx.execute(_SIZE, {"of_archive": archive_id}).scalar_one())


def read(memory: Mapping[str, Any]) -> ArchiveSection | None:
    """The archive of a document. Raises InvalidInput."""
    where = "memory.archive"
    if memory.get("archive") is None:
        return None
    given = members(memory["archive"], where, ("is_owner", "archive", "passages"))
    if not isinstance(given["is_owner"], bool):
        raise InvalidInput(f"{where}.is_owner", "must be true or false")
    archive = row(archive_table, given["archive"], f"{where}.archive", _ARCHIVE)
    identifier(ArchiveId, archive["id"], f"{where}.archive.id")
    if archive["metadata"] is not None:
        members(archive["metadata"], f"{where}.archive.metadata", archive["metadata"] or ())
    found = [_passage(data, f"{where}.passages[{number}]") for number, data in enumerate(section(given, "passages"))]
    distinct(found, lambda each: each["id"], f"{where}.passages")
    return ArchiveSection(archive, given["is_owner"], tuple(found))


def _passage(data: Any, where: str) -> dict[str, Any]:
    given = {**_ALONE, **cast("dict[str, Any]", data)} if isinstance(data, dict) else data
    values = row(passage_table, given, where, _PASSAGE)
    identifier(PassageId, values["id"], f"{where}.id")
    texts(values["tags"], f"{where}.tags")
    members(values["metadata"], f"{where}.metadata", values["metadata"] or ())
    return values


def pieces(tx: Tx, target: Target, wanted: ArchiveSection | None) -> tuple[list[UnchangedItem], int, list[Piece]]:
    """The writes that make this the agent's archive, what they leave unchanged, and the number of its passages. Raises
    Conflict."""
    agent_id, used = target.agent_id, archives.archive_of(tx, target.agent_id)
    if wanted is None:
        return [], 0, [] if used is None else [one(partial(_drop, agent_id=agent_id, used=used))]
    archive_id = ArchiveId(wanted.row["id"])
    others = int(tx.execute(_OTHER_USERS, {"of_archive": archive_id, "of_agent": agent_id}).scalar_one())
    changes = not others or target.overwrite_shared
    _check_archive(tx, target, wanted)
    first = one(partial(_put_archive, target=target, wanted=wanted, changes=changes))
    if not changes:
        return [UnchangedItem("archive", archive_id, wanted.row["name"], others)], 0, [first]
    return [], len(wanted.passages), [first, *_passage_pieces(tx, target, archive_id, wanted)]


def _drop(tx: Tx, agent_id: AgentId, used: ArchiveId) -> None:
    archive_removal.remove_owned(tx, agent_id)
    archives.detach(tx, agent_id, used)


def _check_archive(tx: Tx, target: Target, wanted: ArchiveSection) -> None:
    stands = tx.execute(_STANDS, {"of_archive": wanted.row["id"]}).first()
    if stands is not None and stands.organization_id != target.organization:
        raise Conflict(f"{wanted.row['id']} cannot be created again with its id; nothing was restored")
    if stands is not None and stands.removed:
        raise Conflict(f"{wanted.row['id']} was deleted and is still being removed; try again in a moment")


def _put_archive(tx: Tx, target: Target, wanted: ArchiveSection, changes: bool) -> None:
    agent_id, archive_id = target.agent_id, ArchiveId(wanted.row["id"])
    _check_archive(tx, target, wanted)
    if tx.execute(_STANDS, {"of_archive": archive_id}).first() is None:
        tx.execute(_INSERT, {**wanted.row, "organization_id": target.organization, "removed": False})
    elif changes:
        new = {f"new_{name}": value for name, value in wanted.row.items() if name != "id"}
        tx.execute(_RESTORE, {**new, "of_archive": archive_id})
    used = archives.archive_of(tx, agent_id)
    if used is not None and used != archive_id:
        archives.detach(tx, agent_id, used)
    if used != archive_id:
        tx.execute(_ATTACH, {"agent_id": agent_id, "archive_id": archive_id, "is_owner": wanted.is_owner})


def _passage_pieces(tx: Tx, target: Target, archive_id: ArchiveId, wanted: ArchiveSection) -> list[Piece]:
    there = {each["id"]: each for each in _there(tx, archive_id)}
    meant = {each["id"]: {**each, "checksum": _checksum(each)} for each in wanted.passages}
    gone = [passage_id for passage_id, each in there.items() if meant.get(passage_id) != each]
    new = [each for each in wanted.passages if there.get(each["id"]) != meant[each["id"]]]
    for ids in parts([each["id"] for each in new], _CHUNK):
        if tx.execute(_ELSEWHERE, {"ids": ids, "of_archive": archive_id}).first() is not None:
            raise Conflict(_IN_ANOTHER)
    made = [_made(each, archive_id, target) for each in new]
    return [
        *each_part(gone, REMOVED, _remove),
        *each_part(made, WRITTEN, _insert, lambda each: len(each.text)),
    ]


def _remove(tx: Tx, ids: Sequence[str]) -> None:
    items.remove_many(tx, "passage", ids)
    tx.execute(_DROP, {"ids": list(ids)})


def _insert(tx: Tx, made: Sequence[Passage]) -> None:
    try:
        passages.insert_many(tx, made)
    except IntegrityError as error:
        raise Conflict(_IN_ANOTHER) from error


def _made(values: Mapping[str, Any], archive_id: ArchiveId, target: Target) -> Passage:
    given: dict[str, Any] = {**values, "id": PassageId(values["id"]), "tags": tuple(values["tags"])}
    return Passage(**given, archive_id=archive_id, organization_id=target.organization)
