"""This machine's system and memory, and packages installed beside Kelpie. Its means of isolation are in
`world.isolation`."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# Limits on the memory of a container, as it sees them itself: control groups of version 2 and 1.
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def system() -> str:
    """The operating system and the Python that run this."""
    return f"{platform.system()} {platform.release()}, Python {platform.python_version()}"


def memory_bytes(limits: Sequence[Path] = _CONTAINER_LIMITS) -> int:
    """The memory of this machine, or of the container if that has less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) > 0:
            found = min(found, int(text))
    return found


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package: its version, and whether its files hold a server."""

    version: str
    is_server: bool


def letta() -> Package | None:
    """The package `letta` beside Kelpie, if one is installed; its later versions contain no server."""
    try:
        found = metadata.distribution("letta")
    except metadata.PackageNotFoundError:
        return None
    files = found.files or []
    return Package(found.version, any(file.parts[:2] == ("letta", "server") for file in files))
