"""Uploads of files over HTTP: a multipart form that is streamed to disk. What cannot be a file of a folder is refused
before its content is received."""

from collections.abc import AsyncIterator

from starlette.requests import Request

from kelpie.core.errors import InvalidInput
from kelpie.core.files.file_types import FileType
from kelpie.core.files.files import DuplicateHandling
from kelpie.core.ids import FolderId
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.multipart import MultipartForm, boundary_of
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.letta.folders.shape import file_shape

FORM = {
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "format": "binary"}},
            }
        }
    },
    "required": True,
}
_SKIPPED = {"X-Upload-Result": "skipped"}


class _FileForm:
    """A form with one file, whose name and type are checked when it begins."""

    def __init__(self, api: CallerApi, request: Request, name: str | None) -> None:
        kind = request.headers.get("content-type", "")
        if not kind.lower().startswith("multipart/form-data"):
            raise InvalidInput("Content-Type", "send the file as the field 'file' of a multipart/form-data form")
        self._api = api
        self._name = name
        self._form = MultipartForm(request.stream(), boundary_of(kind))
        self.checked: tuple[str, FileType] | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._form.file():
            self.check()
            yield piece

    def check(self) -> tuple[str, FileType]:
        """The name and type. Raises InvalidInput, UnsupportedType."""
        form = self._form
        if not form.has_file:
            raise InvalidInput("file", "is missing in the form; send the file as the field 'file'")
        if self.checked is None:
            self.checked = self._api.folders.checked(self._name, form.file_label, form.file_media_type)
        return self.checked


async def uploaded(
    api: CallerApi, request: Request, folder_id: FolderId, handling: DuplicateHandling, name: str | None
) -> JsonAnswer:
    """Receives a file for a folder. Raises NotFound, InvalidInput, UnsupportedType, CallerError."""
    await api.folders.get(folder_id)
    form = _FileForm(api, request, name)
    async with api.world.uploads.receive(form.pieces()) as upload:
        wanted, kind = form.check()
        made = await api.folders.upload(folder_id, upload, wanted, kind, handling)
    headers = _SKIPPED if made.skipped else None
    return JsonAnswer(file_shape(made.file, folder=made.folder.name), headers=headers)
