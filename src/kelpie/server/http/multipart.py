"""Multipart forms with one large file: the file is passed on piece by piece, the other fields are small texts.

The form is never a whole in memory. Fields may come before or after the file, so they are complete only when the file
has been read to its end.
"""

from collections.abc import AsyncIterable, AsyncIterator
from email.message import Message as Headers

from kelpie.core.errors import InvalidInput

FIELDS_MAX = 100
FIELD_BYTES_MAX = 1024 * 1024  # of all fields together
HEADER_BYTES_MAX = 16 * 1024  # of one part
BOUNDARY_CHARS_MAX = 200

_END_OF_HEADERS = b"\r\n\r\n"


def boundary_of(content_type: str) -> bytes:
    """The boundary that a form announces. Raises InvalidInput."""
    headers = Headers()
    headers["content-type"] = content_type
    found = headers.get_param("boundary")
    if not isinstance(found, str) or not 0 < len(found) <= BOUNDARY_CHARS_MAX:
        raise InvalidInput("Content-Type", "a multipart form needs a boundary")
    return found.encode("latin-1", "replace")


def _label(raw: bytes) -> str | None:
    """The file name of a part, if it has one."""
    headers = _header(raw, "content-disposition")
    found = None if headers is None else headers.get_filename()
    return found if isinstance(found, str) else None


def _media_type(raw: bytes) -> str | None:
    headers = _header(raw, "content-type")
    return None if headers is None else headers["content-type"]


def _header(raw: bytes, wanted: str) -> Headers | None:
    for line in raw.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            headers = Headers()
            headers[wanted] = value.strip()
            return headers
    return None


class MultipartForm:
    """A form whose file is the part `file_name`. Read the file first; then `fields` is complete."""

    def __init__(self, stream: AsyncIterable[bytes], boundary: bytes, file_name: str = "file") -> None:
        self.fields: dict[str, str] = {}
        self.has_file = False
        self.file_label: str | None = None  # the name that the client gives the file
        self.file_media_type: str | None = None
        self._stream = stream.__aiter__()
        self._mark = b"\r\n--" + boundary
        self._file_name = file_name
        self._waiting = bytearray(b"\r\n")  # so that the first boundary looks like the others
        self._field_bytes = 0

    async def file(self) -> AsyncIterator[bytes]:
        """The content of the file, while the rest of the form is read. Raises InvalidInput for a broken form."""
        async for _ in self._until(self._mark, keep=False):
            pass
        while not await self._is_last():
            headers = await self._headers()
            name = self._part_name(headers)
            if name == self._file_name and not self.has_file:
                self.has_file = True
                self.file_label, self.file_media_type = _label(headers), _media_type(headers)
                async for piece in self._until(self._mark):
                    yield piece
            else:
                await self._field(name)

    async def _field(self, name: str) -> None:
        value = bytearray()
        async for piece in self._until(self._mark):
            self._field_bytes += len(piece)
            if self._field_bytes > FIELD_BYTES_MAX:
                raise InvalidInput(name[:80], f"the fields of the form have more than {FIELD_BYTES_MAX} bytes")
            value += piece
        if len(self.fields) >= FIELDS_MAX:
            raise InvalidInput(name[:80], f"the form has more than {FIELDS_MAX} fields")
        try:
            self.fields[name] = value.decode()
        except UnicodeDecodeError:
            raise InvalidInput(name[:80], "is not UTF-8 text") from None

    async def _is_last(self) -> bool:
        """Reads what follows a boundary: two dashes at the end of the form, or the end of the line."""
        while len(self._waiting) < 2:
            await self._more()
        end = bytes(self._waiting[:2])
        del self._waiting[:2]
        if end == b"--":
            async for _ in self._stream:  # whatever comes after the form
                pass
            return True
        if end != b"\r\n":
            raise InvalidInput("body", "is not a multipart form: a boundary is followed by something else")
        return False

    async def _headers(self) -> bytes:
        while (end := self._waiting.find(_END_OF_HEADERS)) < 0:
            if len(self._waiting) > HEADER_BYTES_MAX:
                raise InvalidInput("body", f"a part of the form has headers of more than {HEADER_BYTES_MAX} bytes")
            await self._more()
        found = bytes(self._waiting[:end])
        del self._waiting[: end + len(_END_OF_HEADERS)]
        return found

    def _part_name(self, raw: bytes) -> str:
        headers = _header(raw, "content-disposition")
        found = None if headers is None else headers.get_param("name", header="content-disposition")
        if isinstance(found, str):
            return found
        raise InvalidInput("body", "a part of the form has no name")

    async def _until(self, mark: bytes, *, keep: bool = True) -> AsyncIterator[bytes]:
        """The bytes up to a mark, which is taken away."""
        while (end := self._waiting.find(mark)) < 0:
            ready = len(self._waiting) - len(mark)
            if ready > 0:
                piece = bytes(self._waiting[:ready])
                del self._waiting[:ready]
                if keep:
                    yield piece
            await self._more()
        if end and keep:
            yield bytes(self._waiting[:end])
        del self._waiting[: end + len(mark)]

    async def _more(self) -> None:
        piece = await anext(self._stream, None)
        if piece is None:
            raise InvalidInput("body", "the form ends too early; send it again")
        self._waiting += piece
