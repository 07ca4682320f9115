"""Installs a set of packages inside a cell: it writes down the settings of the installer and runs its commands.

Between npm's resolving and its installing it checks the resolved tree: every package must come from a registry or an
http(s) address, and a package that Kelpie itself chose must have the hash that Kelpie pins; npm then installs no other
archive. It runs inside the cell with the standard library alone and is never imported by the server; its request comes
as JSON on standard input.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

LOCK_BYTES_MAX = 64 << 20
LOCAL = "{} names a package by a path or a repository, which is refused; only registries and http(s) URLs are allowed"
OTHER = (
    "{} was not installed: the package index has another archive than the one that Kelpie knows ({}); "
    "check the package index that npm uses on this server"
)
_GROUPS = ("dependencies", "optionalDependencies", "peerDependencies")
_ELSEWHERE = ("file:", "link:", "git:", "git+", "github:", "gitlab:", "bitbucket:", "gist:", "/", "./", "../", "~/")


def main() -> None:
    told: dict[str, Any] = json.load(sys.stdin)
    for path, text in told["files"].items():
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
    os.chdir(told["directory"])
    for number, command in enumerate(told["commands"]):
        if number:
            _check_lock(Path("package-lock.json"), told["pinned"])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(done.returncode if done.returncode > 0 else 1)
    for name in told["removed"]:
        Path(name).unlink(missing_ok=True)


def _check_lock(lock: Path, pinned: "Sequence[tuple[str, str]]") -> None:
    """Ends the program if npm resolved a package to anything but a registry or an http(s) address, or a pinned one to
    another archive."""
    if lock.stat().st_size > LOCK_BYTES_MAX:
        sys.exit("the list of resolved packages is too long")
    packages = json.loads(lock.read_text())["packages"]
    for name in _elsewhere(packages):
        sys.exit(LOCAL.format(name))
    for line, found in _others(packages, pinned):
        sys.exit(OTHER.format(line, found))


def _elsewhere(packages: "Mapping[str, Mapping[str, Any]]") -> "Iterator[str]":
    """Names of packages that require, or are, something that lies elsewhere."""
    for path, package in packages.items():
        specs = (spec for group in _GROUPS for spec in package.get(group, {}).values())
        if any(str(spec).startswith(_ELSEWHERE) for spec in specs):
            yield path.rpartition("node_modules/")[2] or "the set"
    for path, package in packages.items():
        resolved = str(package.get("resolved", "http"))
        if path and (not path.startswith("node_modules/") or package.get("link") or not resolved.startswith("http")):
            yield "one of the packages"


def _others(
    packages: "Mapping[str, Mapping[str, Any]]", pinned: "Sequence[tuple[str, str]]"
) -> "Iterator[tuple[str, str]]":
    """Pinned packages that the index offers with another version or hash, each with what it offers."""
    for line, integrity in pinned:
        name, _, version = line.rpartition("@")
        found = packages.get(f"node_modules/{name}", {})
        if (found.get("version"), found.get("integrity")) != (version, integrity):
            yield line, f"version {str(found.get('version'))[:40]}, hash {str(found.get('integrity'))[:120]}"


if __name__ == "__main__":
    main()
