"""Aliases for fields of a tool: `schema`, `runtime` and `requirements`, mapped to Letta's own names."""

from typing import Any, cast

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.package_requirements import Index, written

_ALIASES = {"schema": "json_schema", "runtime": "source_type"}
_NODE = ("typescript", "javascript")


def unaliased(given: Any) -> Any:
    """The body under Letta's field names. Raises ValueError when a field is given twice with different values."""
    if not isinstance(given, dict):
        return given
    body = dict(cast("dict[str, Any]", given))
    for alias, name in _ALIASES.items():
        if alias in body:
            _put(body, alias, name, body.pop(alias))
    if "requirements" in body:
        asked = body.pop("requirements")
        index = Index.npm if body.get("source_type") in _NODE else Index.pip
        if "source_code" not in body and body.get("source_type") is None and asked:
            raise ValueError("send the runtime too; it decides where the requirements are installed from")
        _put(body, "requirements", f"{index}_requirements", _each(index, asked))
    return body


def _put(body: dict[str, Any], alias: str, name: str, value: Any) -> None:
    there = body.get(name)
    if there is not None and value is not None and there != value:
        raise ValueError(f"{alias} and {name} are aliases with different values; send one of them")
    body[name] = there if value is None else value


def _each(index: Index, asked: Any) -> Any:
    if not isinstance(asked, list):
        return asked
    try:
        return [written(index, one) if isinstance(one, str) else one for one in cast("list[Any]", asked)]
    except InvalidInput as error:
        raise ValueError(str(error)) from None
