"""Files of the dashboard: read once, compressed once, and addressed by a version that changes with their content.

The page names its files under `dashboard/<version>/`, so a browser may keep them for ever, and a page of an older
version never gets a file of a newer one.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

from kelpie.world.files.package_files import read_package_folder

_PACKAGE = "kelpie.server.dashboard"
_FOLDER = "static"
_PAGE = "index.html"
_PLACE = "@FILES@"  # in the page, for the folder of its files
_PRELOADED = "@PRELOADED@"
_KINDS = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "html": "text/html; charset=utf-8"}
_VERSION_CHARS = 16


@dataclass(frozen=True)
class DashboardFile:
    """A file as it is sent."""

    media_type: str
    content: bytes

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def tag(self) -> str:
        """The entity tag of the content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'


@dataclass(frozen=True)
class DashboardFiles:
    """The page, and the files that it loads by their paths on this server."""

    page: DashboardFile
    files: dict[str, DashboardFile]


@lru_cache(maxsize=1)
def dashboard_files() -> DashboardFiles:
    """All files, read on first use."""
    found = read_package_folder(_PACKAGE, _FOLDER)
    page = found.pop(_PAGE).decode()
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    place = f"dashboard/{digest.hexdigest()[:_VERSION_CHARS]}"
    modules = sorted(name for name in found if name.startswith("core/") and name.endswith(".js"))
    preloaded = "\n".join(f'<link rel="modulepreload" href="{place}/{name}">' for name in modules)
    text = page.replace(_PRELOADED, preloaded).replace(_PLACE, place)
    return DashboardFiles(
        DashboardFile(_KINDS["html"], text.encode()),
        {f"/{place}/{name}": DashboardFile(_kind(name), content) for name, content in found.items()},
    )


def _kind(name: str) -> str:
    return _KINDS[name.rpartition(".")[2]]
