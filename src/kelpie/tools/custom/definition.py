"""Definition of a custom tool by its author: the checks before it is stored."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import ToolId
from kelpie.core.time import Micros
from kelpie.core.tools.package_requirements import Index, needed
from kelpie.core.tools.tools import NewTool, Tool, ToolType
from kelpie.tools.schema.source import check_text
from kelpie.tools.schema.source_reader import SourceReader

RETURN_CHARS_MAX = 1_000_000
NODE = ("typescript", "javascript")  # the sources that Node runs

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NAMES_SHOWN = 5  # functions of a source, in an error


async def make(
    reader: SourceReader, new: NewTool, tool_id: ToolId, now: Micros, caller: Caller = DEFAULT_CALLER
) -> Tool:
    """The custom tool as described, ready to be stored. Raises InvalidInput."""
    if not new.source_code or not new.source_code.strip():
        raise InvalidInput("source_code", "is empty; a custom tool needs source code")
    check_return_limit(new.return_char_limit)
    check_requirements(new.pip_requirements, new.npm_requirements)
    schema = await _checked_schema(reader, new.source_code, new)
    return Tool(
        id=tool_id,
        name=schema["name"],
        tool_type=ToolType.custom,
        json_schema=schema,
        created_at=now,
        updated_at=now,
        description=new.description or schema.get("description"),
        source_type=new.source_type or "json",  # what Letta answers for Python tools
        source_code=new.source_code,
        args_json_schema=new.args_json_schema or {},
        tags=new.tags,
        return_char_limit=new.return_char_limit,
        pip_requirements=new.pip_requirements,
        npm_requirements=new.npm_requirements,
        default_requires_approval=new.default_requires_approval,
        enable_parallel_execution=new.enable_parallel_execution,
        metadata={
            "tool_hash": fingerprint(new.source_code, new.source_type, new.pip_requirements, new.npm_requirements)
        },
        project_id=new.project_id,
        sandbox=new.sandbox,
        organization_id=caller.organization_id,
        created_by_id=caller.user_id,
        last_updated_by_id=caller.user_id,
    )


async def _checked_schema(reader: SourceReader, text: str, new: NewTool) -> dict[str, Any]:
    """The schema of a tool whose source is valid. Raises InvalidInput."""
    if new.json_schema:
        await check_source(reader, text, new.source_type)
        schema = completed_schema(new.json_schema)
    elif not is_python(new.source_type):
        check_text(text)
        raise InvalidInput(
            "json_schema", f"a tool in {new.source_type} needs a json_schema; it cannot be derived from the source"
        )
    else:
        schema = await reader.checked_schema(text, new.args_json_schema)
    if not _NAME.fullmatch(schema["name"]):
        raise InvalidInput(
            "source_code", f"the function name '{schema['name'][:80]}' may have ASCII letters, digits and '_' only"
        )
    return schema


def completed_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """The schema a client wrote, with the parts it may leave out. Raises InvalidInput."""
    name, parameters = given.get("name"), given.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput("json_schema.name", "must be 1 to 128 letters, digits, '_' or '-'")
    if not isinstance(given.get("description"), str | None):
        raise InvalidInput("json_schema.description", "must be text")
    if parameters is None:
        return dict(given) | {"parameters": {"type": "object", "properties": {}, "required": []}}
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("properties", {}), Mapping):
        raise InvalidInput("json_schema.parameters", "must be an object with 'properties'")
    return dict(given)


def is_python(source_type: str | None) -> bool:
    """True if the source is Python: what Letta calls `json` is, too."""
    return source_type not in NODE


async def check_source(reader: SourceReader, text: str, source_type: str | None) -> None:
    """Raises InvalidInput for an invalid source. Source that Node runs is parsed by Node, in a cell."""
    if is_python(source_type):
        await reader.check(text)
    else:
        check_text(text)


async def check_function(reader: SourceReader, text: str, schema: Mapping[str, Any]) -> None:
    """Raises InvalidInput when new source code does not define the function that the new schema names."""
    names = await reader.function_names(text)
    if (name := schema.get("name")) not in names:
        defined = ", ".join(f"'{one[:80]}'" for one in names[:_NAMES_SHOWN])
        raise InvalidInput(
            "json_schema.name", f"is '{str(name)[:80]}', but the source code defines {defined}; use one name in both"
        )


def check_requirements(pip: Sequence[Mapping[str, Any]] | None, npm: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Raises InvalidInput for an invalid name or version of a package."""
    needed(Index.pip, pip)
    needed(Index.npm, npm)


def check_return_limit(limit: int | None) -> None:
    """Raises InvalidInput."""
    if limit is not None and not 1 <= limit <= RETURN_CHARS_MAX:
        raise InvalidInput("return_char_limit", f"must be from 1 to {RETURN_CHARS_MAX}")


def fingerprint(text: str | None, source_type: str | None, *requirements: Sequence[Mapping[str, Any]] | None) -> str:
    """A short hash of everything that decides how the code runs, which clients see in the tool's metadata."""
    kind = "" if source_type in (None, "json") else source_type
    needed = (
        json.dumps([list(one or ()) for one in requirements], sort_keys=True, default=dict) if any(requirements) else ""
    )
    return hashlib.sha256(f"{text or ''}|{kind}|{needed}".encode("utf-8", "replace")).hexdigest()[:12]


def with_fingerprint(tool: Tool) -> dict[str, Any]:
    """The tool's metadata with its current fingerprint."""
    found = fingerprint(tool.source_code, tool.source_type, tool.pip_requirements, tool.npm_requirements)
    return dict(tool.metadata or {}) | {"tool_hash": found}


async def derived_schema(reader: SourceReader, changes: Mapping[str, Any]) -> dict[str, Any] | InvalidInput | None:
    """The schema of new source code, or the error in it: parsed before the transaction, used in it."""
    text = changes.get("source_code")
    if text is None or changes.get("json_schema"):
        return None
    try:
        return await reader.schema(text, changes.get("args_json_schema"))
    except InvalidInput as problem:
        return problem
