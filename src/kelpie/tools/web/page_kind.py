"""Kinds of pages that can be read as text, by their content type. Pure."""

from enum import StrEnum


class PageKind(StrEnum):
    html = "html"
    pdf = "pdf"
    text = "text"  # passed on as it is: plain text, Markdown, JSON, XML, source code
    unknown = "unknown"  # the content itself tells


_HTML = ("text/html", "application/xhtml+xml")
_UNTOLD = ("", "application/octet-stream", "binary/octet-stream")
_TEXTS = (
    "application/json",
    "application/javascript",
    "application/rss+xml",
    "application/toml",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
)


def kind_of(content_type: str) -> PageKind | None:
    """None for a type that has no text."""
    media = content_type.partition(";")[0].strip().lower()
    if media in _HTML:
        return PageKind.html
    if media in ("application/pdf", "application/x-pdf"):
        return PageKind.pdf
    if media in _UNTOLD:
        return PageKind.unknown
    if media.startswith("text/") or media in _TEXTS or (media.endswith(("+json", "+xml")) and media != "image/svg+xml"):
        return PageKind.text
    return None


def sniffed(body: bytes) -> PageKind | None:
    """The kind of a body whose type is not told."""
    start = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"%PDF-"):
        return PageKind.pdf
    if start[:20].lower().startswith((b"<!doctype html", b"<html")):
        return PageKind.html
    return None if b"\0" in body[:4096] else PageKind.text
