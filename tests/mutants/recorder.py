"""A plugin of pytest that writes down which functions of Kelpie each test reaches, and how long it takes.

Only this process counts: what a server does that a test starts in another process is not seen.
"""

import ast
import builtins
import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.mutants.recorder_file import RECORDED
from tests.mutants.source import functions, load_changed, number

_HIT = "__kelpie_hit__"

_hits: set[int] = set()
setattr(builtins, _HIT, _hits.add)


def counted(path: Path, tree: ast.Module) -> ast.Module:
    """Each function begins with a note of its number."""
    for name, function in functions(tree):
        call = ast.Expr(ast.Call(ast.Name(_HIT, ast.Load()), [ast.Constant(number(path, name))], []))
        documented = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
        function.body.insert(1 if documented and len(function.body) > 1 else 0, call)
    return ast.fix_missing_locations(tree)


load_changed(counted)


def pytest_collection_finish() -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    foreign = sorted(name for name in sys.modules if name.partition(".")[0] not in ("kelpie", "tests", "__main__"))
    (RECORDED / "imports.json").write_text(json.dumps(foreign))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    _hits.clear()
    began = time.monotonic()
    yield
    with (RECORDED / f"reached-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps([item.nodeid, round(time.monotonic() - began, 3), sorted(_hits)]) + "\n")
