"""Response formats as each model supports them.

If the wire format can enforce a schema, it is used. A model that is known to lack that gets instructions in the prompt
instead, so that an agent can be moved to any model with its settings unchanged.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import orjson

from kelpie.core.models.response_formats import named, schema_of
from kelpie.llm.provider.interface import Request

OPTION = "response_format"
OBJECT_WORDS = "Reply with a single JSON object and nothing else."
SCHEMA_WORDS = "Reply with a single JSON object and nothing else. It must conform to this JSON schema:"


def formed(request: Request, *, able: bool) -> Request:
    """The request with its response format in the form that this model accepts; `able`: its wire format enforces
    schemas."""
    wanted = request.options.get(OPTION)
    if not isinstance(wanted, Mapping):
        return request
    form = cast("Mapping[str, Any]", wanted)
    if form.get("type") == "json_object":  # some providers refuse it unless the prompt speaks of JSON
        return replace(request, system=_with(request.system, OBJECT_WORDS))
    schema = schema_of(form) if form.get("type") == "json_schema" else None
    if schema is None:
        return request
    if able:
        return replace(request, options={**request.options, OPTION: named(form)})
    options = {name: value for name, value in request.options.items() if name != OPTION}
    words = f"{SCHEMA_WORDS}\n{orjson.dumps(schema).decode()}"
    return replace(request, system=_with(request.system, words), options=options)


def _with(system: str, words: str) -> str:
    return f"{system}\n\n{words}" if system else words
