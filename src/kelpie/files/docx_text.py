"""Text of DOCX files, paragraph by paragraph and table by table. Only the program of a worker process imports it."""

import io
import zipfile
import zlib

import docx
from docx.document import Document
from docx.opc.exceptions import OpcError
from docx.table import Table
from docx.text.paragraph import Paragraph
from lxml.etree import LxmlError

from kelpie.tools.web.unreadable import Unreadable

ENTRIES_MAX = 5_000
UNPACKED_BYTES_MAX = 256 * 1024 * 1024

_DAMAGED = (
    OpcError, LxmlError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, IndexError, TypeError, AttributeError,
    AssertionError, RecursionError, NotImplementedError, RuntimeError, OSError, EOFError,
)  # fmt: skip


def docx_text(body: bytes) -> str:
    """The text. Raises Unreadable."""
    _check_archive(body)
    try:
        lines = _lines(docx.Document(io.BytesIO(body)))
    except _DAMAGED as error:
        raise Unreadable(f"the DOCX is damaged ({type(error).__name__})") from None
    if not any(line.strip() for line in lines):
        raise Unreadable("the DOCX has no text")
    return "\n".join(lines) + "\n"


def _lines(document: Document) -> list[str]:
    lines: list[str] = []
    for each in document.iter_inner_content():
        if isinstance(each, Paragraph):
            lines.append(each.text)
        elif isinstance(each, Table):
            lines += [" | ".join(cell.text.replace("\n", " ") for cell in row.cells) for row in each.rows]
    return lines


def _check_archive(body: bytes) -> None:
    """Refuses an archive that unpacks to more than it should, before anything of it is unpacked. Raises Unreadable."""
    try:
        entries = zipfile.ZipFile(io.BytesIO(body)).infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError):
        raise Unreadable("it is not a DOCX file") from None
    if len(entries) > ENTRIES_MAX:
        raise Unreadable(f"the DOCX has {len(entries)} entries; at most {ENTRIES_MAX} are read")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_BYTES_MAX:
        raise Unreadable(f"the DOCX unpacks to {unpacked} bytes; at most {UNPACKED_BYTES_MAX} are read")
