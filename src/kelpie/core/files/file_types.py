"""Types of files that can be read as text, by the ending of their name or by the media type that the client gives."""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.errors import UnsupportedType

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
SUPPORTED = "PDF, DOCX, HTML, CSV, JSON, text files (.txt, .md), and code files (.py, .js, .java, etc.)"


class TextSource(StrEnum):
    """How the text of a file is read."""

    plain = "plain"  # text as it is: prose, Markdown, code, CSV, JSON
    html = "html"
    pdf = "pdf"
    docx = "docx"


@dataclass(frozen=True, slots=True)
class FileType:
    media_type: str
    source: TextSource


_BY_ENDING = {
    "txt": "text/plain", "text": "text/plain", "log": "text/plain", "md": "text/x-markdown",
    "markdown": "text/x-markdown", "mdx": "text/x-markdown", "rst": "text/x-rst", "adoc": "text/asciidoc",
    "org": "text/x-org", "tex": "text/x-tex", "bib": "text/x-bibtex", "srt": "application/x-subrip", "vtt": "text/vtt",
    "json": "application/json", "jsonl": "application/x-ndjson", "ndjson": "application/x-ndjson",
    "csv": "text/csv", "tsv": "text/tab-separated-values", "xml": "application/xml", "yaml": "application/x-yaml",
    "yml": "application/x-yaml", "toml": "application/toml", "ini": "text/plain", "cfg": "text/plain",
    "conf": "text/plain", "properties": "text/plain", "env": "text/plain",
    "html": "text/html", "htm": "text/html", "xhtml": "application/xhtml+xml",
    "pdf": "application/pdf", "docx": DOCX,
    "py": "text/x-python", "pyi": "text/x-python", "ipynb": "application/x-ipynb+json", "js": "text/javascript",
    "mjs": "text/javascript", "cjs": "text/javascript", "jsx": "text/jsx", "ts": "text/x-typescript",
    "tsx": "text/x-typescript", "java": "text/x-java-source", "kt": "text/x-kotlin", "scala": "text/x-scala",
    "c": "text/x-c", "h": "text/x-c", "cc": "text/x-c++", "cpp": "text/x-c++", "cxx": "text/x-c++",
    "hpp": "text/x-c++", "cs": "text/x-csharp", "go": "text/x-go", "rs": "text/x-rust", "rb": "text/x-ruby",
    "php": "text/x-php", "pl": "text/x-perl", "swift": "text/x-swift", "m": "text/x-objective-c", "r": "text/x-r",
    "lua": "text/x-lua", "hs": "text/x-haskell", "clj": "text/x-clojure", "ex": "text/x-elixir",
    "exs": "text/x-elixir", "erl": "text/x-erlang", "dart": "text/x-dart", "jl": "text/x-julia", "zig": "text/x-zig",
    "sh": "text/x-sh", "bash": "text/x-sh", "zsh": "text/x-sh", "fish": "text/x-sh", "ps1": "text/x-powershell",
    "bat": "text/x-bat", "sql": "text/x-sql", "css": "text/css", "scss": "text/x-scss", "less": "text/x-less",
    "vue": "text/x-vue", "svelte": "text/x-svelte", "graphql": "text/x-graphql", "proto": "text/x-protobuf",
    "tf": "text/x-terraform", "gradle": "text/x-gradle", "cmake": "text/x-cmake", "diff": "text/x-diff",
    "patch": "text/x-diff",
}  # fmt: skip
_BY_NAME = {"dockerfile": "text/x-dockerfile", "makefile": "text/x-makefile", "license": "text/plain",
            "readme": "text/plain"}  # fmt: skip
_SOURCES = {
    "text/html": TextSource.html,
    "application/xhtml+xml": TextSource.html,
    "application/pdf": TextSource.pdf,
    DOCX: TextSource.docx,
}
_KNOWN = frozenset((*_BY_ENDING.values(), *_BY_NAME.values()))
MEDIA_TYPE_CHARS_MAX = 200


def file_type(name: str, given: str | None) -> FileType:
    """The type by the name, or by the media type that the client gives. Raises UnsupportedType."""
    ending = name.lower().rpartition(".")[2]
    media = _BY_ENDING.get(ending) if "." in name else _BY_NAME.get(ending)
    if media is None:
        media = (given or "").partition(";")[0].strip().lower()
        if media not in _KNOWN and not (media.startswith("text/") and len(media) <= MEDIA_TYPE_CHARS_MAX):
            shown = media[:80] or "unknown"
            raise UnsupportedType(f"Unsupported file type: {shown} (filename: {name}). Supported types: {SUPPORTED}.")
    return FileType(media, source_of(media))


def source_of(media_type: str) -> TextSource:
    """How the text of a file with this media type is read."""
    return _SOURCES.get(media_type, TextSource.plain)
