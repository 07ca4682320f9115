"""A tool's Python source as a syntax tree: its function, and the meaning of the names in its annotations.

The source is parsed and never executed, and only in a worker process (`source_program`), because parsing and compiling
can take far more time and memory than the source is long. The tool is the last function at the top level whose name
does not begin with an underscore; the other functions, and the classes, are its helpers.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema.constants import is_text

SOURCE_CHARS_MAX = 256 * 1024
FIELD = "source_code"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of the names at the top level of a source; the last definition of a name counts."""

    classes: dict[str, ast.ClassDef] = field(default_factory=dict[str, ast.ClassDef])
    aliases: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])  # Mode = Literal["a", "b"]
    imported: dict[str, str] = field(default_factory=dict[str, str])  # from typing import List as L

    def of(self, node: ast.expr) -> str:
        """The name an expression is known by elsewhere: `L`, `List` and `typing.List` are all List; else empty."""
        if isinstance(node, ast.Attribute):
            return node.attr
        return self.imported.get(node.id, node.id) if isinstance(node, ast.Name) else ""


@dataclass(frozen=True, slots=True)
class Source:
    function: Function
    names: Names


def check(source: str) -> None:
    """Compiles the source and throws the code away. Raises InvalidInput with the line of the error."""
    tree = _parsed(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "tool.py", "exec", dont_inherit=True)
    except SyntaxError as error:  # what only shows when code is made: a return outside a function, an unknown loop
        raise InvalidInput(FIELD, f"is not valid Python: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise InvalidInput(FIELD, f"cannot be compiled: {_told(error)}") from None


def read(source: str) -> Source:
    """Raises InvalidInput when the source does not parse or holds no function that can be the tool."""
    statements = list(_outer(_parsed(source).body))
    functions = _functions(statements)
    public = [node for node in functions if not node.name.startswith("_")]
    return Source((public or functions)[-1], _names(statements))


def function_names(source: str) -> list[str]:
    """The names of the functions at the top level. Raises InvalidInput when there is none."""
    return [node.name for node in _functions(_outer(_parsed(source).body))]


def _functions(statements: Iterable[ast.stmt]) -> list[Function]:
    found = [node for node in statements if isinstance(node, Function)]
    if not found:
        raise InvalidInput(FIELD, "contains no top-level function; define the tool as one")
    return found


def check_text(source: str) -> None:
    """Raises InvalidInput for a source that is too long, in any language, or cannot be stored."""
    if len(source) > SOURCE_CHARS_MAX:
        raise InvalidInput(FIELD, f"has {len(source)} characters; the limit is {SOURCE_CHARS_MAX}")
    if not is_text(source):
        raise InvalidInput(FIELD, "contains a NUL character or an invalid Unicode character; remove it")


def _parsed(source: str) -> ast.Module:
    check_text(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks about the user's code are not for our log
            return ast.parse(source)
    except SyntaxError as error:
        raise InvalidInput(FIELD, f"is not valid Python: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(FIELD, f"cannot be parsed: {_told(error)}") from None


def _told(error: Exception) -> str:
    return str(error) or "it is nested too deeply or needs too much memory; make it shorter or nest it less"


def _outer(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of the top level, also those under an `if` or a `try`, in the order they are written."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(body=first, orelse=last):
                waiting.extend(reversed([*first, *last]))
            case ast.Try(body=first, handlers=handlers, orelse=other, finalbody=last):
                caught = [statement for handler in handlers for statement in handler.body]
                waiting.extend(reversed([*first, *caught, *other, *last]))
            case _:
                yield node


def _names(statements: Iterable[ast.stmt]) -> Names:
    names = Names()
    for node in statements:
        match node:
            case ast.ClassDef(name=name):
                names.classes[name] = node
                names.aliases.pop(name, None)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names.aliases[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names.aliases[name] = value
            case ast.ImportFrom(names=found):
                names.imported.update({one.asname: one.name for one in found if one.asname})
            case _:
                pass
    return names
