"""Advisories in the OSV format, and whether one concerns a version. See https://ossf.github.io/osv-schema."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import total_ordering
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from release.pinned import NPM, PYPI, Pinned

_SEMVER = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


class Unreadable(Exception):
    """A file that is no advisory."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """One package of one advisory."""

    id: str
    ecosystem: str
    name: str
    modified: datetime
    summary: str
    affected: Mapping[str, Any]

    def concerns(self, pin: Pinned) -> bool:
        """True if the version is affected, and also if the advisory says it in a way that cannot be compared."""
        if pin.version in self.affected.get("versions", ()):
            return True
        ranges = [each for each in self.affected.get("ranges", ()) if each.get("type") in ("ECOSYSTEM", "SEMVER")]
        try:
            return any(_within(each.get("events", ()), pin) for each in ranges)
        except (InvalidVersion, ValueError):
            return True


def read(place: Path) -> Iterator[Advisory]:
    """All advisories for Python and npm below a folder or in a .zip file, also in the .zip files of the folder.

    Raises Unreadable, OSError.
    """
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    for file in files:
        if file.suffix == ".json":
            yield from _advisories(file.read_bytes(), file.name)
        elif file.suffix == ".zip":
            yield from _zipped(file)


def _zipped(file: Path) -> Iterator[Advisory]:
    try:
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield from _advisories(archive.read(name), f"{file.name}: {name}")
    except zipfile.BadZipFile as error:
        raise Unreadable(f"{file.name} is not a .zip file: {error}") from error


def _advisories(data: bytes, source: str) -> Iterator[Advisory]:
    try:
        record = json.loads(data)
        modified = datetime.fromisoformat(record["modified"])
        for affected in () if record.get("withdrawn") else record.get("affected", ()):
            ecosystem = affected.get("package", {}).get("ecosystem")
            if ecosystem in (PYPI, NPM):
                name = key(ecosystem, affected["package"]["name"])
                summary = record.get("summary") or record.get("details", "").partition("\n")[0]
                yield Advisory(record["id"], ecosystem, name, modified, summary, affected)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{source} is not an advisory in the OSV format ({type(error).__name__}: {error})") from error


def key(ecosystem: str, name: str) -> str:
    """The name under which a package is looked up."""
    return canonicalize_name(name) if ecosystem == PYPI else name


def _within(events: Sequence[Mapping[str, str]], pin: Pinned) -> bool:
    """The algorithm of the OSV schema: the last event at or before the version decides."""
    version = _order(pin.ecosystem, pin.version)
    found = False
    told = [(kind, text) for event in events for kind, text in event.items()]
    for kind, text in sorted(told, key=lambda each: _order(pin.ecosystem, each[1])):
        at = _order(pin.ecosystem, text)
        if kind == "introduced" and version >= at:
            found = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            found = False
    return found


@total_ordering
class _Npm:
    """A version of npm, in the order of semantic versioning. Raises ValueError."""

    def __init__(self, text: str) -> None:
        if (match := _SEMVER.fullmatch(text)) is None:
            raise ValueError(f"{text!r} is not a version of npm")
        self._numbers = tuple(int(each) for each in match.groups()[:3])
        parts = match[4].split(".") if match[4] else []
        self._before = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Npm) and (self._numbers, self._before) == (other._numbers, other._before)

    def __lt__(self, other: "_Npm") -> bool:
        if self._numbers != other._numbers:
            return self._numbers < other._numbers
        if not self._before or not other._before:
            return bool(self._before)
        return self._before < other._before

    __hash__ = None  # type: ignore[assignment]


def _order(ecosystem: str, text: str) -> Any:
    if text == "0":  # of "introduced": before every version
        text = "0.0.0-0" if ecosystem == NPM else "0.dev0"
    return _Npm(text) if ecosystem == NPM else Version(text)
