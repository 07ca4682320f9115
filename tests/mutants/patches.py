"""Bugs that somebody wrote as unified diffs of `src`."""

import ast
import re
import subprocess
import tempfile
from pathlib import Path

from tests.mutants.planted import Planted
from tests.mutants.source import ROOT, functions

_FILE = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


def patched(patch: Path) -> Planted:
    """The change that a diff makes. Raises CalledProcessError where it does not fit."""
    names = _FILE.findall(patch.read_text())
    trees: dict[Path, ast.Module] = {}
    places: list[tuple[Path, list[str] | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            copy = Path(folder) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
        subprocess.run(("patch", "-p1", "-s", "-d", folder, "-i", patch.resolve()), check=True)
        for name in names:
            tree = ast.parse((Path(folder) / name).read_bytes())
            before = dict(functions(ast.parse((ROOT / name).read_bytes())))
            changed = [
                each
                for each, function in functions(tree)
                if each not in before or ast.dump(before[each]) != ast.dump(function)
            ]
            trees[ROOT / name] = tree
            places.append((ROOT / name, changed or None))
    where = ", ".join(f"{path.name}: {', '.join(found or ['the module'])}" for path, found in places)
    return Planted(f"{patch.parent.name}-{patch.stem}", where, places, lambda: trees)
