"""Programs of installed packages: how one is started inside a cell.

npm links no programs when Kelpie installs, and pip writes them elsewhere; so what a package declares is read here. A
set holds ordinary files only and is never changed after its installation.
"""

import configparser
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index
from kelpie.world.cells.mounts import interpreter

FILE_BYTES_MAX = 1024 * 1024
PYTHON_PACKAGES = "/packages"
NODE_PACKAGES = "/node_modules"  # where Node looks for the packages of any file

_ENTRY = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")


def command(index: Index, place: str, package: str, program: str | None) -> list[str]:
    """The command of a program of a set that lies in `place`. Raises ToolError if it has none of this name."""
    if index is Index.npm:
        return _npm(Path(place, "node_modules"), package, program)
    return _python(Path(place), package, program or package)


def _npm(place: Path, package: str, program: str | None) -> list[str]:
    declared: Any = _json(place / package / "package.json").get("bin")
    own = package.rpartition("/")[2]
    programs: dict[str, Any] = {own: declared} if isinstance(declared, str) else dict(declared or {})
    name = program or (next(iter(programs)) if len(programs) == 1 else own)
    path = programs.get(name)
    if not isinstance(path, str) or ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
        raise ToolError(f"the package {package} has no program named '{name}'{_others(programs)}")
    return ["node", str(PurePosixPath(NODE_PACKAGES, package, path))]


def _python(place: Path, package: str, program: str) -> list[str]:
    scripts: dict[str, str] = {}
    for found in sorted(place.glob("*.dist-info/entry_points.txt")):
        scripts |= {name: entry for name, entry in _scripts(found).items() if name not in scripts}
    entry = _ENTRY.fullmatch(re.sub(r"\s*\[.*", "", scripts.get(program, "")).strip())
    if entry is None:
        raise ToolError(f"the package {package} has no program named '{program}'{_others(scripts)}")
    code = (
        f"import importlib, sys; sys.argv[0] = {program!r}; at = importlib.import_module({entry[1]!r})\n"
        f"for name in {entry[2]!r}.split('.'): at = getattr(at, name)\n"
        "sys.exit(at())"
    )
    return [interpreter(), "-s", "-c", code]


def _scripts(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]  # names are not made lower case
    try:
        parser.read_string(_text(path))
    except configparser.Error:
        return {}
    return dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(_text(path))
    except (json.JSONDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _text(path: Path) -> str:
    """The text of a small file; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def _others(programs: Mapping[str, Any]) -> str:
    names = ", ".join(sorted(map(str, programs))[:10])
    return f"; it has {names}" if names else ""
