"""The program that reads pages in a worker process: decompression, decoding, and the readable text of HTML and PDF.

The libraries for both parse what strangers wrote, in C or without bounds of their own, so the server's own process
never imports them. Only `page_reader` asks this program.
"""

import json
import re
import struct
from typing import Any

from kelpie.tools.web.charsets import text_of
from kelpie.tools.web.document_text import html_text, pdf_text
from kelpie.tools.web.page_kind import PageKind, sniffed
from kelpie.tools.web.raw_exchange import NotDecodable, TooLarge, decoded
from kelpie.tools.web.unreadable import Unreadable

HEAD = struct.Struct(">I")  # length of the facts, as JSON; the body follows them
TEXT_CHARS_MAX = 500_000
TITLE_CHARS_MAX = 300
PAGES_MAX = 200  # of a PDF
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BLANKS = re.compile(r"\n{3,}")


def answer(request: bytes) -> bytes:
    """The title and text of a page as JSON, or why it has none under `unreadable`."""
    length = HEAD.unpack_from(request)[0]
    facts = json.loads(request[HEAD.size : HEAD.size + length])
    try:
        found = _read(request[HEAD.size + length :], facts)
    except Unreadable as error:
        found = {"unreadable": str(error)}
    except TooLarge:
        found = {"unreadable": f"it is larger than {facts['bytes_max']} bytes when it is decompressed"}
    except NotDecodable as error:
        found = {"unreadable": str(error)}
    return json.dumps(found, ensure_ascii=False).encode()


def _read(body: bytes, facts: dict[str, Any]) -> dict[str, str]:
    body = decoded(body, facts["encoding"], facts["bytes_max"])
    kind = PageKind(facts["kind"])
    found = sniffed(body) if kind is PageKind.unknown else kind
    if found is None:
        raise Unreadable("it is a binary file that is neither HTML nor PDF nor text")
    if found is PageKind.pdf:
        return _pdf(body)
    text = text_of(body, facts["content_type"], markup=found is PageKind.html)
    return _html(text, facts["url"]) if found is PageKind.html else _shown("", text, "")


def _shown(title: str, text: str, note: str) -> dict[str, str]:
    text = _BLANKS.sub("\n\n", _CONTROL.sub("", text.replace("\r\n", "\n"))).strip()
    if len(text) > TEXT_CHARS_MAX:
        text, note = text[:TEXT_CHARS_MAX], f"{note} Only the first {TEXT_CHARS_MAX} characters are shown.".strip()
    title = " ".join(_CONTROL.sub("", title).split())[:TITLE_CHARS_MAX]
    return {"title": title, "text": text, "note": note}


def _html(text: str, url: str) -> dict[str, str]:
    found = html_text(text, url)
    return _shown(found.title, found.text, "")


def _pdf(body: bytes) -> dict[str, str]:
    found = pdf_text(body, PAGES_MAX, TEXT_CHARS_MAX)
    read, count = len(found.parts), found.count
    note = f"Only the first {read} of {count} pages were read." if read < count else ""
    return _shown(found.title, "\n\n".join(found.parts), note)
