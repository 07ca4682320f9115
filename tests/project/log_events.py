"""The log events in the source: each call of a logger has a literal code and a literal sentence."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kelpie.observe.library_logs import LIBRARY_MESSAGE
from kelpie.observe.logs import LINES_LOST

SOURCE = Path(__file__).parents[2] / "src" / "kelpie"
LEVEL_OF = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
# Events that do not go through `Logger`: a sink that failed, and the records of libraries.
OTHERS = {LINES_LOST["code"]: LINES_LOST["level"], LIBRARY_MESSAGE: "any"}


class Event(NamedTuple):
    code: str
    level: str
    sentence: str


def literal(node: ast.expr, where: str) -> str:
    assert isinstance(node, ast.Constant) and isinstance(node.value, str), f"{where}: not a literal text"
    return node.value


def is_logger(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logs"), attr="get" | "Logger")):
            return True
        case _:
            return False


def events_of(path: Path) -> Iterator[Event]:
    if "logs" not in (text := path.read_text()):
        return
    nodes = list(ast.walk(tree := ast.parse(text)))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "kelpie.observe.logs" not in imported, f"{path}: write `from kelpie.observe import logs`"
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and is_logger(node.value)]
    assert len(assigned) == sum(map(is_logger, nodes)), f"{path}: a logger belongs in a name of its module"
    loggers = {ast.unparse(target) for node in assigned for target in node.targets}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    logged = [node for node in calls if ast.unparse(node.func).partition(".")[0] in loggers]
    used = [node for node in nodes if isinstance(node, ast.Name) and node.id in loggers]
    assert len(used) == len(assigned) + len(logged), f"{path}: a logger is called where its events are, not passed on"
    for node in logged:
        where, method = f"{path}:{node.lineno}", ast.unparse(node.func).rpartition(".")[2]
        code, sentence = (literal(each, where) for each in node.args)
        yield Event(code, LEVEL_OF[method], sentence)


@cache
def all_events() -> list[Event]:
    return [event for path in sorted(SOURCE.rglob("*.py")) for event in events_of(path)]
