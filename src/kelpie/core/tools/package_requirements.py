"""Package requirements of a tool: names and versions, nothing else that an installer understands. Pure.

An installer accepts options, addresses and paths where it accepts names; this module refuses all of them.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.errors import InvalidInput


class Index(StrEnum):
    """Source of packages."""

    pip = "pip"
    npm = "npm"


_NAMES = {
    Index.pip: re.compile(
        r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?(?:\[[A-Za-z0-9._-]+(?:,[A-Za-z0-9._-]+)*\])?"
    ),
    Index.npm: re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]{0,100}/)?[a-z0-9~][a-z0-9._~-]{0,126}"),
}
_PIP_EXACT = re.compile(r"[0-9][A-Za-z0-9.!+_-]{0,63}")
_PIP_RANGE = re.compile(
    r"(?:(?:==|>=|<=|!=|~=|<|>)\s*[0-9][A-Za-z0-9.!+*_-]{0,63})(?:\s*,\s*(?:==|>=|<=|!=|~=|<|>)\s*[0-9][A-Za-z0-9.!+*_-]{0,63}){0,8}"
)
_NPM_VERSION = re.compile(r"[0-9A-Za-z^~<>=*][0-9A-Za-z^~<>=*.| +-]{0,63}")
_WRITTEN = {  # a requirement as one text
    Index.pip: re.compile(r"\s*([^=<>!~\s]+)\s*([=<>!~].*?)?\s*"),
    Index.npm: re.compile(r"\s*(@?[^@\s]+)(?:@(.+?))?\s*"),
}


@dataclass(frozen=True, slots=True)
class RequiredPackages:
    """A set of packages of one index, as arguments for its installer; their order does not matter."""

    index: Index
    lines: tuple[str, ...]
    integrity: tuple[tuple[str, str], ...] = ()  # lines whose archive must have this hash, as npm writes it

    def key(self, platform: str) -> str:
        """Cache key: equal for the same packages on the same platform."""
        told = [self.index, platform, *self.lines, *(f"{line} {each}" for line, each in self.integrity)]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def needed(index: Index, given: Sequence[Mapping[str, Any]] | None) -> RequiredPackages:
    """The packages of a tool. Raises InvalidInput for anything but the name and the version of a package."""
    return RequiredPackages(index, tuple(sorted({_line(index, one) for one in given or ()})))


def _line(index: Index, one: Mapping[str, Any]) -> str:
    field, name, version = f"{index}_requirements", one.get("name"), one.get("version")
    if not isinstance(name, str) or not _NAMES[index].fullmatch(name):
        raise InvalidInput(
            field,
            f"'{str(name)[:80]}' is not a package name; use its name in the package index, not a URL or a path",
        )
    if version is None or version == "":
        return name
    if not isinstance(version, str):
        raise InvalidInput(field, f"the version of {name} must be a text")
    if index is Index.npm:
        if _NPM_VERSION.fullmatch(version):
            return f"{name}@{version}"
    elif _PIP_EXACT.fullmatch(version):
        return f"{name}=={version}"
    elif _PIP_RANGE.fullmatch(version):
        return name + re.sub(r"\s", "", version)
    raise InvalidInput(field, f"'{version[:80]}' is not a valid version of {name}; use 1.2.3, or a range such as >=1.2")


def written(index: Index, text: str) -> dict[str, str | None]:
    """The name and the version in one text, such as `requests>=2` or `left-pad@1.3`. Raises InvalidInput."""
    found = _WRITTEN[index].fullmatch(text)
    if found is None:
        raise InvalidInput("requirements", f"'{text[:80]}' does not contain a package name")
    version = found[2]
    return {"name": found[1], "version": version.removeprefix("==").strip() if version else None}
