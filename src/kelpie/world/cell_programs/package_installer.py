"""Installs a set of packages inside a cell: it writes down the settings of the installer and runs its commands.

Between npm's resolving and its installing it checks the resolved tree: every package must come from a registry or an
http(s) address. It runs inside the cell with the standard library alone and is never imported by the server; its
request comes as JSON on standard input.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

LOCK_BYTES_MAX = 64 << 20
LOCAL = "{} names a package by a path or a repository, which is refused; only registries and http(s) URLs are allowed"
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
            _check_lock(Path("package-lock.json"))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(done.returncode if done.returncode > 0 else 1)
    for name in told["removed"]:
        Path(name).unlink(missing_ok=True)


def _check_lock(lock: Path) -> None:
    """Ends the program if npm resolved a package to anything but a registry or an http(s) address."""
    if lock.stat().st_size > LOCK_BYTES_MAX:
        sys.exit("the list of resolved packages is too long")
    for name in _elsewhere(json.loads(lock.read_text())["packages"]):
        sys.exit(LOCAL.format(name))


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


if __name__ == "__main__":
    main()
