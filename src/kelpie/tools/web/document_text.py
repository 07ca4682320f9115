"""Readable text of HTML and PDF documents. Only programs of worker processes may import this module: the libraries
parse what strangers wrote, in C or without bounds of their own.
"""

import io
import re
from dataclasses import dataclass

import pypdf
import trafilatura
from pypdf.errors import PyPdfError

from kelpie.tools.web.unreadable import Unreadable

_REFRESH = re.compile(r"url\s*=\s*['\"]?([^'\"\s>]{1,2000})", re.IGNORECASE)
_END, _END_BYTES, _MISSING_END = b"%%EOF", 1024, b"\nstartxref\n0\n%%EOF\n"  # of a PDF that was cut off
SHORT_CHARS = 200  # a page with less text may only lead to another


@dataclass(frozen=True, slots=True)
class DocumentText:
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of each page that was read, and the number of all pages."""

    title: str
    parts: list[str]
    count: int


def html_text(text: str, url: str | None = None) -> DocumentText:
    """The title and readable text of HTML as Markdown; without readable text all of its text. Raises Unreadable."""
    tree = trafilatura.load_html(text)
    if tree is None:
        raise Unreadable("it has no HTML that can be read")
    title = "".join(tree.xpath("string((//title)[1])"))
    refresh = tree.xpath("string((//meta[translate(@http-equiv, 'REFSH', 'refsh')='refresh']/@content)[1])")
    found = trafilatura.extract(
        tree, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
    )
    if not found:
        found = trafilatura.html2txt(text)
    if url is not None and len(found) < SHORT_CHARS and (target := _REFRESH.search(refresh)):
        raise Unreadable(f"it only leads to another page; fetch {target[1]} instead")
    if not found.strip():
        raise Unreadable("it has no readable text; its content may be made by scripts, which are not run")
    return DocumentText(title, found)


def pdf_text(body: bytes, pages_max: int, chars_max: int) -> PdfText:
    """The text of the first pages, until there are too many of them or too many characters. Raises Unreadable."""
    try:
        reader = pypdf.PdfReader(io.BytesIO(body if _END in body[-_END_BYTES:] else body + _MISSING_END))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("the PDF is encrypted")
        count, parts, size = len(reader.pages), list[str](), 0
        for at in range(min(count, pages_max)):
            parts.append(reader.pages[at].extract_text())
            size += len(parts[-1])
            if size > chars_max:
                break
        title = str((reader.metadata and reader.metadata.title) or "")
    except (Unreadable, MemoryError):
        raise
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"the PDF is damaged ({type(error).__name__})") from None
    if not "".join(parts).strip():
        raise Unreadable("the PDF has no text; it may consist of images")
    return PdfText(title, parts, count)
