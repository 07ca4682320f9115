"""This machine's system, and packages installed beside Kelpie. Its means of isolation are in `world.isolation`."""

import platform
from dataclasses import dataclass
from importlib import metadata


def system() -> str:
    """The operating system and the Python that run this."""
    return f"{platform.system()} {platform.release()}, Python {platform.python_version()}"


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
