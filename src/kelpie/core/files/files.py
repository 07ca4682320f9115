"""Files of folders: their processing, their passages, and the view that an agent has of one.

A file never changes: replacing it makes another one. Its text is stored as passages, which follow each other without a
gap, so the passages joined are the text.
"""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.errors import InvalidId
from kelpie.core.files.folders import Folder
from kelpie.core.ids import DEFAULT_ORGANIZATION, AgentId, FileId, FolderId, OrganizationId, PassageId
from kelpie.core.time import Micros

_VERSION, _VARIANT = 0xF << 76, 0x3 << 62  # bits that are the same in every uuid4
_UUID4 = (0x4 << 76) | (0x2 << 62)


class FileStatus(StrEnum):
    """States of processing, in their order; `error` may follow each of the first three."""

    pending = "pending"  # its text was imported, and waits to be cut into passages
    parsing = "parsing"
    embedding = "embedding"
    completed = "completed"
    error = "error"


class DuplicateHandling(StrEnum):
    """What an upload does when the folder has a file of this name."""

    skip = "skip"
    error = "error"
    suffix = "suffix"
    replacing = "replace"  # a text has a method of that name


@dataclass(frozen=True, slots=True)
class File:
    id: FileId
    folder_id: FolderId
    name: str  # in its folder, where it is unique
    original_name: str
    media_type: str
    size: int  # bytes of the upload
    created_at: Micros
    updated_at: Micros
    status: FileStatus = FileStatus.parsing
    error: str | None = None
    passages: int | None = None  # None until they are known
    indexed: int = 0  # of the passages, those that can be found once it is completed
    embedded: int = 0  # of those, the ones with a vector
    lines: int = 0
    chars: int = 0
    attempts: int = 0  # to read it
    note: str | None = None  # about its text, such as pages that have none
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    created_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class FilePassage:
    """A piece of a file's text. `line` is the number of the first line that begins in it; it starts in the middle of
    a line if `mid_line` is true."""

    id: PassageId
    file_id: FileId
    position: int
    text: str
    line: int
    mid_line: bool = False


@dataclass(frozen=True, slots=True)
class FileView:
    """A file as an agent sees it. `start_line` counts from 1, and `end_line` is included; without both it is seen from
    its start. `visible` is the text that is shown, if it is open."""

    file: File
    folder_name: str
    is_open: bool = False
    accessed_at: Micros | None = None
    start_line: int | None = None
    end_line: int | None = None
    visible: str | None = None

    @property
    def name(self) -> str:
        """Its name with that of its folder, by which agents call it."""
        return full_name(self.folder_name, self.file.name)


@dataclass(frozen=True, slots=True)
class Directory:
    """An attached folder in the prompt. `hidden` is the number of files that are not listed there."""

    folder: Folder
    files: tuple[FileView, ...] = ()
    hidden: int = 0


def full_name(folder: str, name: str) -> str:
    return f"{folder}/{name}"


def view_id(agent_id: AgentId, file_id: FileId) -> str:
    """The id of an agent's view of a file: the same every time, and from it `file_of_view` finds the file."""
    return f"file_agent-{_mixed(agent_id.uuid, file_id.uuid)}"


def file_of_view(agent_id: AgentId, view: str) -> FileId | None:
    """The file of a view's id; None for what is no such id."""
    try:
        return FileId.parse(f"file-{_mixed(agent_id.uuid, view.removeprefix('file_agent-'))}")
    except (ValueError, InvalidId):
        return None


def _mixed(first: str, second: str) -> str:
    number = int(first.replace("-", ""), 16) ^ int(second.replace("-", ""), 16)
    digits = f"{(number & ~(_VERSION | _VARIANT)) | _UUID4:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
