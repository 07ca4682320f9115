"""The program that reads pages in a worker process: decompression, decoding, and the readable text of HTML and PDF.

The libraries for both parse what strangers wrote, in C or without bounds of their own, so the server's own process
never imports them. Only `page_reader` asks this program.
"""

import io
import json
import re
import struct
from typing import Any

import pypdf
import trafilatura
from pypdf.errors import PyPdfError

from kelpie.tools.web.charsets import text_of
from kelpie.tools.web.page_kind import PageKind, sniffed
from kelpie.tools.web.raw_exchange import NotDecodable, TooLarge, decoded

HEAD = struct.Struct(">I")  # length of the facts, as JSON; the body follows them
TEXT_CHARS_MAX = 500_000
TITLE_CHARS_MAX = 300
PAGES_MAX = 200  # of a PDF
SHORT_CHARS = 200  # a page with less text may only lead to another
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BLANKS = re.compile(r"\n{3,}")
_REFRESH = re.compile(r"url\s*=\s*['\"]?([^'\"\s>]{1,2000})", re.IGNORECASE)


class _Unreadable(Exception):
    """Why there is no text, as the end of a sentence."""


def answer(request: bytes) -> bytes:
    """The title and text of a page as JSON, or why it has none under `unreadable`."""
    length = HEAD.unpack_from(request)[0]
    facts = json.loads(request[HEAD.size : HEAD.size + length])
    try:
        found = _read(request[HEAD.size + length :], facts)
    except _Unreadable as error:
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
        raise _Unreadable("it is a binary file that is neither HTML nor PDF nor text")
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
    tree = trafilatura.load_html(text)
    if tree is None:
        raise _Unreadable("it has no HTML that can be read")
    title = "".join(tree.xpath("string((//title)[1])"))
    refresh = tree.xpath("string((//meta[translate(@http-equiv, 'REFSH', 'refsh')='refresh']/@content)[1])")
    found = trafilatura.extract(
        tree, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
    )
    if not found:
        found = trafilatura.html2txt(text)
    if len(found) < SHORT_CHARS and (target := _REFRESH.search(refresh)):
        raise _Unreadable(f"it only leads to another page; fetch {target[1]} instead")
    if not found.strip():
        raise _Unreadable("it has no readable text; its content may be made by scripts, which are not run")
    return _shown(title, found, "")


def _pdf(body: bytes) -> dict[str, str]:
    try:
        reader = pypdf.PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise _Unreadable("the PDF is encrypted")
        count, parts, size = len(reader.pages), list[str](), 0
        for at in range(min(count, PAGES_MAX)):
            parts.append(reader.pages[at].extract_text())
            size += len(parts[-1])
            if size > TEXT_CHARS_MAX:
                break
        title = str((reader.metadata and reader.metadata.title) or "")
    except _Unreadable:
        raise
    except MemoryError:
        raise
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise _Unreadable(f"the PDF is damaged ({type(error).__name__})") from None
    if not "".join(parts).strip():
        raise _Unreadable("the PDF has no text; it may consist of images")
    note = f"Only the first {len(parts)} of {count} pages were read." if len(parts) < count else ""
    return _shown(title, "\n\n".join(parts), note)
