"""Space on the disk that holds a directory."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskSpace:
    total_bytes: int
    free_bytes: int


def disk_space(path: Path) -> DiskSpace | None:
    """None when the system does not say."""
    try:
        found = shutil.disk_usage(path)
    except OSError:
        return None
    return DiskSpace(found.total, found.free)
