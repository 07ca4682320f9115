"""What a power cut leaves of a database and its log: everything that was synced, and any part of the rest.

A disk may have stored later writes and not earlier ones, and only some sectors of a write. The journal of the killed
process (journal.c) tells which writes no sync followed. They are undone, and some of them are done again.
"""

import random
import struct
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
_HEADER = struct.Struct("<cc4Q")


@dataclass(frozen=True)
class Change:
    """A write ('w') or a truncation ('t') of a file, with what was there before."""

    kind: str
    file: str
    offset: int
    size: int  # of the file before
    old: bytes
    new: bytes


@dataclass(frozen=True)
class Losses:
    """What a power cut did to the changes that were not synced."""

    kept: int
    torn: int
    dropped: int


def unsynced(journal: Path) -> list[Change]:
    """The changes that no sync of their file followed, in order. A record that a kill cut off did not happen."""
    data, at = journal.read_bytes() if journal.exists() else b"", 0
    pending: list[Change] = []
    while at + _HEADER.size <= len(data):
        kind, file, offset, size, new_bytes, old_bytes = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if at + old_bytes + new_bytes > len(data):
            break
        if kind == b"s":
            pending = [change for change in pending if change.file != file.decode()]
        else:
            old, new = data[at : at + old_bytes], data[at + old_bytes : at + old_bytes + new_bytes]
            pending.append(Change(kind.decode(), file.decode(), offset, size, old, new))
        at += old_bytes + new_bytes
    return pending


def cut_power(database: Path, journal: Path, rng: random.Random) -> Losses:
    """Leaves of the files what a power cut might, and empties the journal."""
    files = {"d": database, "l": database.with_name(database.name + "-wal")}
    pending = [change for change in unsynced(journal) if files[change.file].exists()]
    for change in reversed(pending):
        _undo(files[change.file], change)
    kept = torn = 0
    for change in pending:
        fate = rng.random()
        if fate < 0.4:
            _redo(files[change.file], change, rng, torn=False)
            kept += 1
        elif fate < 0.7:
            _redo(files[change.file], change, rng, torn=True)
            torn += 1
    database.with_name(database.name + "-shm").unlink(missing_ok=True)  # memory, which a restart does not have
    journal.unlink(missing_ok=True)
    return Losses(kept, torn, len(pending) - kept - torn)


def _undo(path: Path, change: Change) -> None:
    with path.open("r+b") as file:
        if change.old:
            file.seek(change.offset)
            file.write(change.old)
        file.truncate(change.size)


def _redo(path: Path, change: Change, rng: random.Random, *, torn: bool) -> None:
    with path.open("r+b") as file:
        if change.kind == "t":
            file.truncate(change.offset)
            return
        for start in range(0, len(change.new), SECTOR):
            if not torn or rng.random() < 0.5:
                file.seek(change.offset + start)
                file.write(change.new[start : start + SECTOR])
