"""Reading of an uploaded file in a worker process with limits on time and memory: its text as passages."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kelpie.core.errors import KelpieError
from kelpie.core.files.file_types import TextSource, source_of
from kelpie.core.files.files import File, FilePassage, FileStatus
from kelpie.core.ids import PassageId
from kelpie.core.settings.settings import Settings
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram, Workers

MEGABYTE = 1024 * 1024
MODULE = "kelpie.files.parse_program"
WALL_FACTOR = 5  # of the processor time, for a machine that is busy
MEMORY_BYTES = 1024 * MEGABYTE  # besides the upload itself, a few times

_HEAD = struct.Struct(">I")
_RECORD = struct.Struct(">IIB")


class FileUnreadable(KelpieError):
    """Why a file has no text, in a sentence for people. It is final: trying again would not help."""


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The text of a file. The passages are decoded when they are asked for, because they may be many."""

    file: File
    count: int
    lines: int
    chars: int
    note: str
    answer: bytes
    start: int  # of the passages in the answer

    def passages(self) -> Iterator[FilePassage]:
        at = self.start
        for position in range(self.count):
            size, line, mid_line = _RECORD.unpack_from(self.answer, at)
            at += _RECORD.size
            text = self.answer[at : at + size].decode()
            at += size
            key = PassageId(f"passage-{stable_uuid(self.file.id, str(position))}")
            yield FilePassage(key, self.file.id, position, text, line, bool(mid_line))


def program(settings: Settings) -> WorkerProgram:
    """The program that reads files, with its limits."""
    text_bytes = settings.file_text_mb_max * MEGABYTE
    return WorkerProgram(
        MODULE,
        cpu_s=int(settings.file_parse_s),
        wall_s=settings.file_parse_s * WALL_FACTOR,
        memory_bytes=MEMORY_BYTES + 4 * settings.upload_bytes_max + 8 * text_bytes,
        answer_bytes_max=8 * text_bytes + MEGABYTE,
    )


async def parse(workers: Workers, settings: Settings, file: File, upload: Upload, tokens: int) -> ParsedFile:
    """The text of a file. Raises FileUnreadable, WorkerFailed when the process just ended, and Overloaded."""
    facts = {
        "source": (TextSource.plain if file.status is FileStatus.pending else source_of(file.media_type)).value,
        "tokens": tokens,
        "chars_max": settings.file_text_mb_max * MEGABYTE,
    }
    head = json.dumps(facts).encode()
    used = program(settings)
    try:
        # Its own queue, in which one file waits at most: no page that an agent reads keeps a file out.
        owner = f"{file.organization_id}/files"
        answer = await workers.ask(used, replace(upload, head=_HEAD.pack(len(head)) + head), owner)
    except WorkerFailed as failure:
        if failure.fault is WorkerFault.crash:
            raise
        raise FileUnreadable(_told(failure.fault, used)) from None
    length = _HEAD.unpack_from(answer)[0]
    found = json.loads(answer[_HEAD.size : _HEAD.size + length])
    if "unreadable" in found:
        raise FileUnreadable(f"The file cannot be read: {found['unreadable']}.")
    return ParsedFile(
        file, found["passages"], found["lines"], found["chars"], found["note"], answer, _HEAD.size + length
    )


def _told(fault: WorkerFault, used: WorkerProgram) -> str:
    if fault is WorkerFault.time:
        return (
            f"The file cannot be read: it takes more than {used.cpu_s} s of processor time (KELPIE_FILE_PARSE_SECONDS)."
        )
    return f"The file cannot be read: it needs more than {used.memory_bytes // MEGABYTE} MB of memory."
