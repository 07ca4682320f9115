"""The program that reads source code in a worker process: syntax check, schema, detection of the language.

Compiling a few hundred bytes can take seconds and gigabytes, so the server's own process never does it. Only
`source_reader` asks this program.
"""

import json
from typing import Any

from kelpie.core.errors import InvalidInput
from kelpie.core.tools import languages
from kelpie.tools.schema import source
from kelpie.tools.schema.python_schema import schema_from_source, schema_with_arguments
from kelpie.tools.schema.typescript_schema import schema_from_typescript


def answer(request: bytes) -> bytes:
    """The result of one task on a text, or the field and remedy of the error in it."""
    asked = json.loads(request)
    try:
        return json.dumps({"result": _TASKS[asked["task"]](asked["text"], asked)}).encode()
    except InvalidInput as error:
        return json.dumps({"field": error.field, "remedy": error.remedy}).encode()


def _check(text: str, asked: dict[str, Any]) -> None:
    source.check(text)


def _checked_schema(text: str, asked: dict[str, Any]) -> dict[str, Any]:
    source.check(text)
    return _python_schema(text, asked)


def _python_schema(text: str, asked: dict[str, Any]) -> dict[str, Any]:
    arguments = asked.get("arguments")
    return schema_with_arguments(text, arguments) if arguments else schema_from_source(text)


def _function_names(text: str, asked: dict[str, Any]) -> list[str]:
    return source.function_names(text)


def _typescript_schema(text: str, asked: dict[str, Any]) -> dict[str, Any]:
    return schema_from_typescript(text)


def _language(text: str, asked: dict[str, Any]) -> str:
    return languages.detect(text)


_TASKS = {
    "check": _check,
    "checked_schema": _checked_schema,
    "python_schema": _python_schema,
    "function_names": _function_names,
    "typescript_schema": _typescript_schema,
    "language": _language,
}
