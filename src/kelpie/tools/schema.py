"""The JSON schema of a Python tool, read from its source. The source is parsed and never executed.

The tool is the last function at the top level; what stands before it are its helpers.
"""

import ast
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.tools import docstrings
from kelpie.tools.annotations import SUPPORTED, UnsupportedAnnotation, parameter_schema

SOURCE_CHARS_MAX = 256 * 1024

_FIELD = "source_code"
_GIVEN_BY_THE_SERVER = frozenset({"self", "agent_state"})


def schema_from_source(source: str) -> dict[str, Any]:
    """{name, description, parameters} of the tool in the source.

    Raises InvalidInput when the source does not parse, has no function, or lacks a docstring, a type annotation or a
    description of a parameter, which it names.
    """
    function = _tool_in(source)
    text = ast.get_docstring(function, clean=False)
    if not text or not text.strip():
        raise InvalidInput(
            _FIELD, f"the function {function.name} has no docstring; add one that says what the tool does"
        )
    documented = docstrings.read(text)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for argument, has_default in _parameters(function.args):
        schema, optional = _annotated(function.name, argument)
        description = documented.parameters.get(argument.arg)
        if not description:
            raise InvalidInput(
                _FIELD,
                f"the parameter '{argument.arg}' of {function.name} has no description; "
                f"add a line `{argument.arg}: what it is` under `Args:` in the docstring",
            )
        properties[argument.arg] = schema | {"description": description}
        if not has_default and not optional:
            required.append(argument.arg)
    return _tool_schema(function.name, documented.description, properties, required)


def schema_with_arguments(source: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the parameters described by the caller and not by the source. Raises InvalidInput."""
    function = _tool_in(source)
    described = inspect.cleandoc(ast.get_docstring(function, clean=False) or "")
    return {"name": function.name, "description": described, "parameters": dict(arguments)}


def _tool_schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


def _tool_in(source: str) -> ast.FunctionDef:
    if len(source) > SOURCE_CHARS_MAX:
        raise InvalidInput(_FIELD, f"has {len(source)} characters; at most {SOURCE_CHARS_MAX} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks about the user's code are not for our log
            tree = ast.parse(source)
    except SyntaxError as error:
        raise InvalidInput(_FIELD, f"is not valid Python: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(_FIELD, f"cannot be parsed: {error}") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if functions:
        return functions[-1]
    if any(isinstance(node, ast.AsyncFunctionDef) for node in tree.body):
        raise InvalidInput(_FIELD, "holds only async functions; make the tool a plain `def`")
    raise InvalidInput(_FIELD, "holds no function at its top level; define the tool as one")


def _parameters(arguments: ast.arguments) -> Iterator[tuple[ast.arg, bool]]:
    """The parameters the model fills in, each with whether it has a default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without_default = len(positional) - len(arguments.defaults)
    for number, argument in enumerate(positional):
        if argument.arg not in _GIVEN_BY_THE_SERVER:
            yield argument, number >= without_default
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg not in _GIVEN_BY_THE_SERVER:
            yield argument, default is not None


def _annotated(function: str, argument: ast.arg) -> tuple[dict[str, Any], bool]:
    if argument.annotation is None:
        raise InvalidInput(
            _FIELD, f"the parameter '{argument.arg}' of {function} has no type annotation; add one of {SUPPORTED}"
        )
    try:
        return parameter_schema(argument.annotation)
    except UnsupportedAnnotation as error:
        raise InvalidInput(
            _FIELD, f"the parameter '{argument.arg}' of {function} has the type {error}; use {SUPPORTED}"
        ) from None
