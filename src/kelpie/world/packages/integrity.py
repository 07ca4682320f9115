"""Integrity of packages that Kelpie itself chooses: the archive that npm took must be the one whose hash is pinned.

npm checks an archive against the hash that the index tells, and records that hash. A wrong index could tell the hash of
a wrong archive; so the record is compared with the pin before the set is used.
"""

import json
from pathlib import Path
from typing import Any, cast

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import RequiredPackages

_RECORD = "node_modules/.package-lock.json"
_RECORD_BYTES_MAX = 16 << 20


def check(wanted: RequiredPackages, installed: Path) -> None:
    """Raises ToolError when a package of an installed set is not the pinned archive."""
    if not wanted.integrity:
        return
    record = _record(installed / _RECORD)
    for line, integrity in wanted.integrity:
        name, _, version = line.rpartition("@")
        found = record.get(f"node_modules/{name}", {})
        if (found.get("version"), found.get("integrity")) != (version, integrity):
            raise ToolError(
                f"{line} was not installed: the package index has another archive than the one that Kelpie knows "
                f"(its hash is {str(found.get('integrity'))[:120]}, not {integrity}). Check the package index that npm "
                "uses on this server."
            )


def _record(file: Path) -> dict[str, Any]:
    """What npm recorded about the installed packages; nothing if there is no such record."""
    try:
        with file.open("rb") as stream:
            told: Any = json.loads(stream.read(_RECORD_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    packages = cast("dict[str, Any]", told).get("packages") if isinstance(told, dict) else None
    return cast("dict[str, Any]", packages) if isinstance(packages, dict) else {}
