"""The changes that are planted: one small one each, of the kind that a tired engineer makes.

Log lines, messages, types and documentation are left alone.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.source import Function, functions

_BORDERS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_METHODS = {"desc": "asc", "asc": "desc"}
_CONDITIONS = ("where", "and_", "or_", "filter")
_LOGS = ("log", "_log", "logs", "_LOG", "LOG")
_STATEMENTS = (ast.Expr, ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break, ast.Assign)


@dataclass(frozen=True)
class Mutant:
    """A change of one place. `plant` makes it in the syntax tree that it was found in."""

    function: str | None  # None at the level of the module
    line: int
    before: str
    after: str
    plant: Callable[[], None]

    def text(self) -> str:
        return f"{self.before}  ->  {self.after}"


def mutants(tree: ast.Module) -> list[Mutant]:
    """All changes of a module, always in the same order."""
    found = [mutant for name, function in functions(tree) for mutant in _in(name, function)]
    return found + [mutant for node in tree.body for mutant in _at_module_level(node)]


def read(path: Path, number: int | None = None) -> tuple[ast.Module, list[Mutant]]:
    """A module and its changes, with the one of a number planted."""
    tree = ast.parse(path.read_bytes())
    found = mutants(tree)
    if number is not None:
        found[number].plant()
        ast.fix_missing_locations(tree)
    return tree, found


def _at_module_level(node: ast.stmt) -> Iterator[Mutant]:
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        yield from _expressions(None, node.value)
        yield from _fewer_of(None, node.value)
    elif isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.Assign | ast.AnnAssign):
                yield from _at_module_level(inner)


def _in(name: str, function: Function) -> Iterator[Mutant]:
    yield from _body(name, function.body, first=True)
    for default in (*function.args.defaults, *(each for each in function.args.kw_defaults if each is not None)):
        yield from _expressions(name, default)


def _body(name: str, body: list[ast.stmt], *, first: bool = False) -> Iterator[Mutant]:
    for at, node in enumerate(body):
        if first and at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if _is_log(node) or isinstance(node, ast.Assert | ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
            continue
        yield from _without(name, body, at, node)
        yield from _statement(name, node)


def _is_log(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in _LOGS


def _without(name: str, body: list[ast.stmt], at: int, node: ast.stmt) -> Iterator[Mutant]:
    if not isinstance(node, _STATEMENTS):
        return
    if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield):
        return

    def plant() -> None:
        body[at] = ast.copy_location(ast.Pass(), node)

    yield Mutant(name, node.lineno, _shown(node), "pass", plant)


def _statement(name: str, node: ast.stmt) -> Iterator[Mutant]:
    if isinstance(node, Function):
        yield from _body(name, node.body, first=True)
        return
    if isinstance(node, ast.ClassDef):
        return
    if isinstance(node, ast.If | ast.While):
        yield from _branches(name, node, node.test)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "exc", "type", "returns"):
            continue
        if isinstance(value, ast.expr):
            yield from _expressions(name, value)
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from _body(name, value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.expr):
                    yield from _expressions(name, item)
                elif isinstance(item, ast.withitem):
                    yield from _expressions(name, item.context_expr)
                elif isinstance(item, (ast.ExceptHandler, ast.match_case)):
                    yield from _body(name, item.body)
    if isinstance(node, ast.Return | ast.Assign) and node.value is not None:
        yield from _fewer_of(name, node.value)


def _branches(name: str | None, node: ast.If | ast.While | ast.IfExp, test: ast.expr) -> Iterator[Mutant]:
    for constant in (True, False):
        if isinstance(node, ast.While) and (constant or isinstance(test, ast.Constant)):
            continue  # for ever, or a loop that is left by break

        def plant(value: bool = constant) -> None:
            node.test = ast.Constant(value)

        kind = {ast.If: "if", ast.While: "while"}.get(type(node), "... if")
        yield Mutant(name, test.lineno, f"{kind} {_shown(test)}", f"{kind} {constant}", plant)


def _expressions(name: str | None, top: ast.expr) -> Iterator[Mutant]:
    holder = ast.Expr(top)
    for node in ast.walk(holder):
        if isinstance(node, ast.Lambda | ast.JoinedStr):
            continue
        yield from _expression(name, node)


def _expression(name: str | None, node: ast.AST) -> Iterator[Mutant]:
    match node:
        case ast.IfExp():
            yield from _branches(name, node, node.test)
        case ast.comprehension(ifs=ifs) if ifs:
            for at, test in enumerate(ifs):
                yield _set(name, test, ifs, at, ast.Constant(True), f"for ... if {_shown(test)}", "for ... if True")
        case ast.BoolOp(values=values):
            for at, value in enumerate(values):
                yield _dropped(name, node, values, at, value)
        case ast.Compare(ops=[op]) if type(op) in _BORDERS:
            other = _BORDERS[type(op)]()
            after = ast.Compare(node.left, [other], node.comparators)
            yield _set(name, node, node.ops, 0, other, _shown(node), _shown(after))
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not _has_text(node):
            other_op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            after_sum = ast.BinOp(node.left, other_op, node.right)

            def plant_op() -> None:
                node.op = other_op

            yield Mutant(name, node.lineno, _shown(node), _shown(after_sum), plant_op)
        case ast.UnaryOp(op=ast.Not()):
            operand = node.operand

            def plant_not() -> None:
                node.operand = ast.UnaryOp(ast.Not(), operand)

            yield Mutant(name, node.lineno, _shown(node), _shown(operand), plant_not)
        case ast.Constant(value=bool() as value):

            def plant_bool() -> None:
                node.value = not value

            yield Mutant(name, node.lineno, str(value), str(not value), plant_bool)
        case ast.Constant(value=int() as count):

            def plant_int() -> None:
                node.value = count + 1

            yield Mutant(name, node.lineno, str(count), str(count + 1), plant_int)
        case ast.Slice():
            yield from _slice(name, node)
        case ast.Call():
            yield from _call(name, node)


def _slice(name: str | None, node: ast.Slice) -> Iterator[Mutant]:
    for field in ("lower", "upper"):
        bound = getattr(node, field)
        if bound is None:
            continue

        def plant(field: str = field) -> None:
            setattr(node, field, None)

        yield Mutant(name, bound.lineno, f"[{_shown(node)}]", f"no {field} bound", plant)


def _call(name: str | None, node: ast.Call) -> Iterator[Mutant]:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if isinstance(node.func, ast.Name) and called in _NAMES:
        func = node.func

        def plant_name() -> None:
            func.id = _NAMES[called]

        yield Mutant(name, node.lineno, _shown(node), f"{_NAMES[called]}(...)", plant_name)
    if isinstance(node.func, ast.Attribute) and called in _METHODS:
        method = node.func

        def plant_method() -> None:
            method.attr = _METHODS[called]

        yield Mutant(name, node.lineno, _shown(node), f".{_METHODS[called]}()", plant_method)
    if called in _CONDITIONS and len(node.args) > 1:
        for at, argument in enumerate(node.args):
            yield _removed(name, argument, node.args, at, f"{called}({_shown(argument)})", "no such condition")
    if called[:1].isupper() and called not in ("Column", "Table", "Index"):
        return  # most fields of a record have no default
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            before = f"{called}({keyword.arg}={_shown(keyword.value)})"
            yield _removed(name, keyword.value, node.keywords, at, before, f"no {keyword.arg}")


def _fewer_of(name: str | None, node: ast.expr) -> Iterator[Mutant]:
    """One entry less of a table."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    if isinstance(node, ast.Dict) and len(node.keys) > 1:
        keys, values = node.keys, node.values
        for at, key in enumerate(keys):
            if key is None:
                continue

            def plant(at: int = at) -> None:
                del keys[at], values[at]

            yield Mutant(name, key.lineno, f"{{{_shown(key)}: ...}}", "no such entry", plant)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1 and name is None:
        for at, element in enumerate(node.elts):
            yield _removed(name, element, node.elts, at, f"(..., {_shown(element)}, ...)", "no such element")


def _set(
    name: str | None, node: ast.expr, items: list[Any], at: int, value: ast.AST, before: str, after: str
) -> Mutant:
    def plant() -> None:
        items[at] = value

    return Mutant(name, node.lineno, before, after, plant)


def _removed(name: str | None, node: ast.expr, items: list[Any], at: int, before: str, after: str) -> Mutant:
    def plant() -> None:
        del items[at]

    return Mutant(name, node.lineno, before, after, plant)


def _dropped(name: str | None, node: ast.BoolOp, values: list[ast.expr], at: int, value: ast.expr) -> Mutant:
    def plant() -> None:
        del values[at]
        if len(values) == 1:
            values.append(values[0])

    return Mutant(name, node.lineno, _shown(node), f"without {_shown(value)}", plant)


def _has_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(inner, ast.JoinedStr) or (isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes))
        for inner in ast.walk(node)
    )


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."
