"""Fields of a request that imports an agent file: of the form, or of the query when the body is the file itself."""

from collections.abc import Mapping
from typing import Any, cast

import orjson

from kelpie.core.agents.agent_file import ImportOptions
from kelpie.core.errors import InvalidInput

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_OLDER = {
    "name": "override_name",
    "model": "override_model_handle",
    "embedding": "override_embedding_handle",
    "secrets": "env_vars_json",
}


def import_options(fields: Mapping[str, str], headers: Mapping[str, str]) -> ImportOptions:
    """The client's wishes; older names of the fields count where the present ones are missing. Raises InvalidInput."""
    given = {name: fields.get(name) or fields.get(older) or None for name, older in _OLDER.items()}
    embedding = given["embedding"] or headers.get("x-override-embedding-model")
    if embedding is not None and "/" not in embedding:
        raise InvalidInput("embedding", "must have the form provider/model")
    return ImportOptions(
        override_existing_tools=_flag(fields, "override_existing_tools", True),
        strip_messages=_flag(fields, "strip_messages", False),
        append_copy_suffix=_flag(fields, "append_copy_suffix", True),
        name=given["name"],
        model=given["model"],
        embedding=embedding,
        project_id=fields.get("project_id") or headers.get("x-project-id") or None,
        secrets=_secrets(given["secrets"]),
    )


def _flag(fields: Mapping[str, str], name: str, default: bool) -> bool:
    text = fields.get(name, "").strip().lower()
    if not text:
        return default
    if text not in (*_TRUE, *_FALSE):
        raise InvalidInput(name, "must be true or false")
    return text in _TRUE


def _secrets(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidInput("secrets", 'must be JSON, such as {"KEY": "value"}') from None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in cast("dict[str, Any]", found).values()):
        raise InvalidInput("secrets", 'must be one JSON object with texts, such as {"KEY": "value"}')
    return cast("dict[str, str]", found)
