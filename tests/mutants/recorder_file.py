"""What the recorder wrote down: which tests reach a function."""

import ast
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.source import ROOT, functions

RECORDED = ROOT / ".venv" / "mutants"


@dataclass(frozen=True, slots=True)
class Test:
    """A test, the seconds it took, and how many functions it reaches."""

    name: str
    seconds: float
    size: int


class Reached:
    """Tests by the functions that they reach."""

    def __init__(self, folder: Path) -> None:
        tests: dict[str, Test] = {}
        numbers: dict[str, list[int]] = {}
        for file in sorted(folder.glob("reached-*.jsonl"), key=lambda file: file.stat().st_mtime):
            for line in file.read_text().splitlines():
                name, seconds, hits = json.loads(line)
                tests[name] = Test(name, seconds, len(hits))
                numbers[name] = hits
        self._tests: dict[int, list[Test]] = defaultdict(list)
        for name, hits in numbers.items():
            for hit in hits:
                self._tests[hit].append(tests[name])

    def reaching(self, numbers: Iterable[int]) -> set[Test]:
        """The tests that reach at least one of the functions."""
        return {test for number in numbers for test in self._tests.get(number, ())}

    @staticmethod
    @cache
    def functions(path: Path) -> list[str]:
        """The functions of a module."""
        return [name for name, _ in functions(ast.parse(path.read_bytes()))]


def reached() -> Reached:
    """What all recordings of this checkout say. Of a test that was recorded twice, the last counts."""
    return Reached(RECORDED)
