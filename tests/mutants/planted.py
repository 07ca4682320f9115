"""A change that is planted in the product."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.source import functions, number


@dataclass(frozen=True)
class Planted:
    """`places` are the files it changes with the functions in them, or None for all of a file."""

    name: str
    where: str
    places: Sequence[tuple[Path, Sequence[str] | None]]
    trees: Callable[[], Mapping[Path, ast.Module]]

    def numbers(self) -> set[int]:
        """What stands in a recording for the functions that it changes."""
        found = set()
        for path, names in self.places:
            if names is None:
                names = ["", *(name for name, _ in functions(ast.parse(path.read_bytes())))]
            found.update(number(path, name) for name in names)
        return found
