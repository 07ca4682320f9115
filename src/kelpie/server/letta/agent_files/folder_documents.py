"""Folders and files in agent files: read with their texts, and written as Letta writes them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from kelpie.core.agents.agent_file import Document, ExportedFolder, FileFolder, FolderFile, OpenFile
from kelpie.core.errors import InvalidInput
from kelpie.core.files.file_names import checked_name
from kelpie.core.files.file_types import MEDIA_TYPE_CHARS_MAX
from kelpie.core.files.files import File, FileView, full_name, view_id
from kelpie.core.files.folders import Folder
from kelpie.core.ids import AgentId
from kelpie.core.time import as_datetime, from_datetime
from kelpie.server.letta.folders.body import CreateFolder, new_folder
from kelpie.server.letta.folders.shape import Embeddings
from kelpie.server.letta.models.shape import embedding_config

Of = Callable[[str, str], str]  # the reference of an id, by its kind

_FOLDER_FIELDS = ("name", "description", "instructions", "metadata", "embedding", "embedding_chunk_size")


def folder(row: Document, where: str) -> FileFolder:
    """Raises InvalidInput."""
    given = {name: row[name] for name in _FOLDER_FIELDS if row.get(name) is not None}
    config: Any = row.get("embedding_config")
    if isinstance(config, dict) and isinstance(cast("Document", config).get("embedding_model"), str):
        given["embedding_config"] = config
    try:
        made = new_folder(CreateFolder.model_validate(given))
    except ValueError as error:
        raise InvalidInput(f"file.{where}", f"is not a folder: {_first_line(error)}") from None
    checked_name(f"file.{where}.name", made.name)
    return FileFolder(str(row["id"]), made)


def _first_line(error: ValueError) -> str:
    return " ".join(str(error).split("\n")[1:3]).strip()[:200]


def files(rows: Sequence[Document], folders: Sequence[FileFolder]) -> tuple[tuple[FolderFile, ...], tuple[str, ...]]:
    """The files with a text, and notes about those without. Raises InvalidInput."""
    known = {each.reference: each.new.name for each in folders}
    found: list[FolderFile] = []
    lacking: list[str] = []
    for number, row in enumerate(rows):
        where = f"file.files[{number}]"
        source, text = row.get("source_id"), row.get("content")
        if source not in known:
            raise InvalidInput(f"{where}.source_id", "refers to a folder that is not in the file")
        name = _text(row, "file_name", where) or _text(row, "original_file_name", where)
        if not name:
            raise InvalidInput(f"{where}.file_name", "must be the name of the file")
        name = checked_name(f"{where}.file_name", name.removeprefix(f"{known[str(source)]}/"))
        if not isinstance(text, str):
            lacking.append(name)
            continue
        original = checked_name(f"{where}.original_file_name", _text(row, "original_file_name", where) or name)
        media, size = _text(row, "file_type", where) or "text/plain", row.get("file_size")
        found.append(
            FolderFile(
                str(row["id"]),
                str(source),
                name,
                original,
                media[:MEDIA_TYPE_CHARS_MAX],
                size if isinstance(size, int) and 0 <= size < 2**53 else len(text.encode("utf-8", "replace")),
                text,
            )
        )
    notes = (f"Files without a text in the file were left out: {', '.join(lacking[:5])}.",) if lacking else ()
    return tuple(found), notes


def _text(row: Document, name: str, where: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{where}.{name}", "must be a text")
    return value


def open_files(given: Any, where: str) -> tuple[OpenFile, ...]:
    """What an agent saw of its files. Raises InvalidInput."""
    rows: list[Any] = given or []
    if not isinstance(given or [], list) or not all(isinstance(each, dict) for each in rows):
        raise InvalidInput(f"file.{where}.files_agents", "must be a list of objects")
    return tuple(_open_file(each, f"file.{where}.files_agents[{n}]") for n, each in enumerate(rows))


def _open_file(row: Document, where: str) -> OpenFile:
    accessed = _text(row, "last_accessed_at", where)
    try:
        at = None if accessed is None else from_datetime(datetime.fromisoformat(accessed))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{where}.last_accessed_at", "must be a time such as 2026-01-31T12:00:00Z") from None
    lines = [row.get(name) for name in ("start_line", "end_line")]
    start, end = (line if isinstance(line, int) and 0 < line < 2**53 else None for line in lines)
    _text(row, "source_id", where)
    return OpenFile(_text(row, "file_id", where) or "", row.get("is_open") is True, at, start, end)


# --- writing ----------------------------------------------------------------------------------------------------------


def folder_document(written: Folder, of: Of, embeddings: Embeddings) -> dict[str, Any]:
    return {
        "name": written.name,
        "description": written.description,
        "instructions": written.instructions,
        "metadata": None if written.metadata is None else dict(written.metadata),
        "embedding": None,
        "embedding_chunk_size": None if written.embedding else written.embedding_chunk_size,
        "embedding_config": embedding_config(written.embedding, written.embedding_chunk_size, embeddings),
        "id": of("source", written.id),
    }


def file_documents(exported: ExportedFolder, of: Of) -> list[dict[str, Any]]:
    return [_file_document(exported.folder, file, text, of) for file, text in exported.files]


def _file_document(folder: Folder, file: File, text: str, of: Of) -> dict[str, Any]:
    return {
        "source_id": of("source", folder.id),
        "file_name": full_name(folder.name, file.name),
        "original_file_name": file.original_name,
        "file_path": None,
        "file_type": file.media_type,
        "file_size": file.size,
        "file_creation_date": None,
        "file_last_modified_date": None,
        "processing_status": file.status.value,
        "error_message": file.error,
        "total_chunks": file.passages,
        "chunks_embedded": file.embedded,
        "content": text,
        "id": of("file", file.id),
    }


def view_document(view: FileView, agent_id: AgentId, of: Of) -> dict[str, Any]:
    accessed = view.accessed_at
    return {
        "agent_id": of("agent", agent_id),
        "file_id": of("file", view.file.id),
        "source_id": of("source", view.file.folder_id),
        "file_name": view.name,
        "is_open": view.is_open,
        "visible_content": view.visible,
        "last_accessed_at": None if accessed is None else as_datetime(accessed).isoformat(),
        "start_line": view.start_line,
        "end_line": view.end_line,
        "id": view_id(agent_id, view.file.id),
    }
