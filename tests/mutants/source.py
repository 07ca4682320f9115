"""Kelpie's modules, compiled from a changed syntax tree as they are imported.

It replaces how source files are loaded in this process, for the files that are named, and for nothing else.
"""

import ast
import zlib
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

Change = Callable[[Path, ast.Module], ast.Module | None]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def load_changed(change: Change) -> None:
    """From now on modules of Kelpie are compiled from what `change` returns; None leaves a module as it is."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if fullname.partition(".")[0] == "kelpie":
            path = Path(self.path)
            changed = change(path, ast.parse(path.read_bytes()))
            if changed is not None:
                return compile(changed, self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a module under their qualified names; the ones inside of functions belong to these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{outer}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")
        else:
            yield from functions(node, outer)


def number(path: Path, name: str) -> int:
    """Stands for a function in the recording."""
    return zlib.crc32(f"{path.relative_to(SOURCE)}:{name}".encode())
