"""The program that reads uploaded files in a worker process: their text, cut into passages, with the numbers of their
lines. The server's own process never parses what was uploaded. Only `parsing` asks this program.
"""

import importlib
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

from kelpie.core.files import passage_cuts
from kelpie.core.files.file_types import TextSource
from kelpie.tools.web.charsets import text_of
from kelpie.tools.web.unreadable import Unreadable

HEAD = struct.Struct(">I")  # length of the facts, as JSON
RECORD = struct.Struct(">IIB")  # of a passage: bytes of its text, first line that begins in it, whether it is mid-line
PAGES_MAX = 5_000  # of a PDF
SNIFFED = 8_192

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_DOCUMENTS = "kelpie.tools.web.document_text"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def answer(request: bytes) -> bytes:
    """Facts as JSON and the passages after them, or why there is no text under `unreadable`."""
    length = HEAD.unpack_from(request)[0]
    wanted = json.loads(request[HEAD.size : HEAD.size + length])
    try:
        text, note = _read(request[HEAD.size + length :], wanted)
        text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n"))
        if len(text) > wanted["chars_max"]:
            raise Unreadable(_too_long(wanted["chars_max"]))
    except Unreadable as error:
        return _packed({"unreadable": str(error)}, [])
    records = list(_records(text, passage_cuts.chars_max(wanted["tokens"])))
    lines = sum(1 for line in text.split("\n") if line.strip())
    return _packed({"passages": len(records), "lines": lines, "chars": len(text), "note": note}, records)


def _packed(facts: dict[str, Any], records: list[bytes]) -> bytes:
    head = json.dumps(facts).encode()
    return b"".join([HEAD.pack(len(head)), head, *records])


def _records(text: str, most: int) -> Iterator[bytes]:
    line, mid, blank = 1, False, True  # `blank`: the line so far
    for passage in passage_cuts.passages(text, most):
        first, begins_mid = line, mid and not blank
        pieces = passage.split("\n")
        for piece in pieces[:-1]:
            if piece.strip() or not blank:
                line += 1
            blank = True
        blank = blank and not pieces[-1].strip()
        mid = bool(pieces[-1]) or (mid and len(pieces) == 1)
        encoded = passage.encode()
        yield RECORD.pack(len(encoded), first + int(begins_mid), begins_mid) + encoded


def _read(body: bytes, wanted: dict[str, Any]) -> tuple[str, str]:
    """The text, and a note about it."""
    source = TextSource(wanted["source"])
    if not body.strip():
        return "", ""
    if source is TextSource.pdf:
        return _pdf(body, wanted["chars_max"])
    if source is TextSource.docx:
        return _libraries("kelpie.files.docx_text").docx_text(body), ""
    if b"\0" in body[:SNIFFED] and not body.startswith(_UTF16):
        raise Unreadable("it is a binary file, not text")
    text = text_of(body, "", markup=source is TextSource.html)
    if source is TextSource.html:
        return _libraries(_DOCUMENTS).html_text(text).text, ""
    return text, ""


def _libraries(module: str) -> Any:
    """A module with large libraries; most files need none of them."""
    return importlib.import_module(module)


def _pdf(body: bytes, chars_max: int) -> tuple[str, str]:
    if not body.lstrip()[:1024].startswith(b"%PDF-"):
        raise Unreadable("it is not a PDF")
    found = _libraries(_DOCUMENTS).pdf_text(body, PAGES_MAX, chars_max)
    if found.count > PAGES_MAX:
        raise Unreadable(f"it has {found.count} pages; at most {PAGES_MAX} are read. Split it")
    if len(found.parts) < found.count:
        raise Unreadable(_too_long(chars_max))
    empty = sum(1 for part in found.parts if not part.strip())
    note = f"{empty} of {found.count} pages have no text; they may consist of images." if empty else ""
    return "".join(f"{part}\n\n" for part in found.parts), note


def _too_long(chars_max: int) -> str:
    return f"it has more than {chars_max} characters of text (KELPIE_FILE_TEXT_MB_MAX). Split it"
