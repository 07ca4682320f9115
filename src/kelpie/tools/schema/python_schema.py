"""The JSON schema of a Python tool, read from its source. The source is parsed and never executed."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.tools.schema import docstrings, source
from kelpie.tools.schema.annotation_syntax import UnsupportedAnnotation
from kelpie.tools.schema.annotations import SUPPORTED, Parameter, Types
from kelpie.tools.schema.constants import NotConstant, constant, is_text
from kelpie.tools.schema.source import FIELD, SOURCE_CHARS_MAX, Function

__all__ = ["SOURCE_CHARS_MAX", "schema_from_source", "schema_with_arguments"]

_GIVEN_BY_THE_SERVER = frozenset({"self", "agent_state"})


def schema_from_source(text: str) -> dict[str, Any]:
    """{name, description, parameters} of the tool in the source.

    Raises InvalidInput when the source does not parse, has no function, or lacks a docstring, a type annotation or a
    description of a parameter, which it names.
    """
    read = source.read(text)
    name = read.function.name
    docstring = _docstring(read.function)
    if not docstring.strip():
        raise InvalidInput(FIELD, f"the function {name} has no docstring; add one that says what the tool does")
    documented, types = docstrings.read(docstring), Types(read.names)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for argument, default in _parameters(read.function.args):
        found = _annotated(types, name, argument)
        description = documented.parameters.get(argument.arg) or found.description
        if not description:
            raise InvalidInput(
                FIELD,
                f"the parameter '{argument.arg}' of {name} has no description; "
                f"add a line `{argument.arg}: what it is` under `Args:` in the docstring",
            )
        properties[argument.arg] = found.schema | {"description": description} | _default(default)
        if default is None and not found.optional:
            required.append(argument.arg)
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if types.definitions:
        parameters["$defs"] = types.definitions
    return _sound({"name": name, "description": documented.description, "parameters": parameters})


def schema_with_arguments(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the parameters described by the caller and not by the source. Raises InvalidInput."""
    function = source.read(text).function
    described = inspect.cleandoc(_docstring(function))
    return _sound({"name": function.name, "description": described, "parameters": dict(arguments)})


def _docstring(function: Function) -> str:
    return ast.get_docstring(function, clean=False) or ""


def _parameters(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters the model fills in, each with its default; `*args` and `**kwargs` cannot be filled in."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    defaults = [*[None] * without, *arguments.defaults, *arguments.kw_defaults]
    for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        if argument.arg not in _GIVEN_BY_THE_SERVER:
            yield argument, default


def _annotated(types: Types, function: str, argument: ast.arg) -> Parameter:
    if argument.annotation is None:
        raise InvalidInput(
            FIELD, f"the parameter '{argument.arg}' of {function} has no type annotation; add one of {SUPPORTED}"
        )
    try:
        return types.parameter(argument.annotation)
    except UnsupportedAnnotation as error:
        raise InvalidInput(
            FIELD, f"the parameter '{argument.arg}' of {function} has the type {error}; use {SUPPORTED}"
        ) from None
    except RecursionError:
        raise InvalidInput(FIELD, f"the type of '{argument.arg}' of {function} is nested too deeply") from None


def _default(node: ast.expr | None) -> dict[str, Any]:
    """A default that is written down is shown to the model; None only makes the parameter optional."""
    try:
        value = None if node is None else constant(node)
    except NotConstant:
        return {}
    return {} if value is None else {"default": value}


def _sound(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, unless one of its texts cannot be stored and sent."""
    waiting: list[Any] = [schema]
    while waiting:
        match waiting.pop():
            case str() as text:
                if not is_text(text):
                    raise InvalidInput(
                        FIELD,
                        "its docstring or types contain a NUL character or an invalid Unicode character; remove it",
                    )
            case dict() as inner:
                waiting.extend([*inner, *inner.values()])
            case list() as inner:
                waiting.extend(inner)
            case _:
                pass
    return schema
