"""Settings of files: limits of their processing."""

from dataclasses import dataclass

from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class FileSettings:
    """Settings of uploaded files."""

    file_text_mb_max: int = setting(
        "files.text_mb_max",
        "Maximum size of the text of one file, in millions of characters; a file with more is not processed.",
        "KELPIE_FILE_TEXT_MB_MAX",
        default=32,
        low=1,
        high=512,
    )
    file_parse_s: float = setting(
        "files.parse_seconds",
        "Maximum processor time for reading one file; a file that takes more is not processed.",
        "KELPIE_FILE_PARSE_SECONDS",
        default=120.0,
        low=1.0,
        high=3600.0,
    )
