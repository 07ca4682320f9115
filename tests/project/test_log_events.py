"""Operators alert on the codes of log events: each code has one meaning, and docs/operations.md lists them all."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kelpie.observe.library_logs import LIBRARY_MESSAGE
from kelpie.observe.logs import LINES_LOST

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kelpie"
PAGE = ROOT / "docs" / "operations.md"
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


def table() -> list[list[str]]:
    [section] = re.findall(r"^## Log events\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_lists_every_code_with_its_level_and_no_other() -> None:
    documented = [(row[0].strip("` "), row[1]) for row in table()]
    assert documented == sorted(documented), "the table is in the order of the codes"
    assert documented == sorted({(event.code, event.level) for event in all_events()} | set(OTHERS.items()))


def test_every_row_says_what_the_code_means() -> None:
    assert [row[0] for row in table() if len(row) != 4 or not row[2].endswith(".")] == []


def test_a_code_has_one_sentence_and_a_sentence_one_code() -> None:
    pairs = {(event.code, event.sentence) for event in all_events()}
    assert len(pairs) > 80
    assert len(pairs) == len({code for code, _ in pairs}) == len({sentence for _, sentence in pairs})


def test_codes_are_short_snake_case_phrases() -> None:
    codes = {event.code for event in all_events()} | set(OTHERS)
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(?:_[a-z]+){1,4}", code)] == []
