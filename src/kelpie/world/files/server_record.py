"""The file in the data directory that says with which settings its server runs; see `core.settings.server_record`."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kelpie.core.errors import ConfigurationError

NAME = "kelpie.settings.json"
BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The process of a server and its settings by key; `salt` is the salt of the digests in them."""

    pid: int
    version: str
    background: bool  # false in the foreground of a terminal or under a service manager
    salt: str
    settings: dict[str, Any]


def write(data_dir: Path, record: ServerRecord) -> None:
    """Replaces the file as a whole. Raises ConfigurationError."""
    unfinished = data_dir / f"{NAME}.part"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(record), file)
        unfinished.replace(data_dir / NAME)
    except OSError as error:
        raise ConfigurationError(
            "KELPIE_DATA_DIR", f"{data_dir} cannot store files ({error.strerror}); free some space"
        ) from error


def read(data_dir: Path, pid: int) -> ServerRecord | None:
    """The record of this server; None if it wrote none, as a server of an older version."""
    try:
        with (data_dir / NAME).open(encoding="utf-8") as file:
            told = json.loads(file.read(BYTES_MAX))
        record = ServerRecord(
            pid=int(told["pid"]),
            version=str(told["version"]),
            background=bool(told["background"]),
            salt=str(told["salt"]),
            settings=dict(told["settings"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the file is a hint only: without it a command says less
    return record if record.pid == pid else None
