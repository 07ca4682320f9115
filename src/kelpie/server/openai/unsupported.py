"""Parameters of OpenAI's API that an agent cannot follow.

Those that only tune a model are ignored, and a header of the answer names them: the agent has settings of its own.
Those that change what the answer is are refused.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import CallerError, InvalidInput
from kelpie.core.json_limits import SCHEMA
from kelpie.core.models.response_formats import check_format


class UnsupportedParameter(CallerError):
    """A parameter asks for something that agents cannot do."""

    error_code = "parameter_unsupported"

    def __init__(self, parameter: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {remedy}")
        self.parameter = parameter


def refuse(given: Mapping[str, Any]) -> None:
    """Raises UnsupportedParameter for the first of the given parameters that agents cannot follow."""
    if (given.get("n") or 1) != 1:
        raise UnsupportedParameter("n", "an agent gives one answer; omit it")
    if given.get("logprobs") or given.get("top_logprobs"):
        raise UnsupportedParameter("logprobs", "agents return no log probabilities; omit it")
    if given.get("audio") is not None or "audio" in (given.get("modalities") or ()):
        raise UnsupportedParameter("modalities", "agents answer with text; omit it")
    if given.get("functions") is not None or given.get("function_call") is not None:
        raise UnsupportedParameter("functions", "use 'tools' and 'tool_choice' instead")


def response_format(given: Mapping[str, Any] | None, field: str) -> Mapping[str, Any] | None:
    """The format of the answer, in the form of chat completions; None for text. Raises InvalidInput."""
    if given is None or given.get("type", "text") == "text":
        return None
    if given.get("type") == "json_schema" and "json_schema" not in given and "schema" in given:  # as responses have it
        given = {"type": "json_schema", "json_schema": {key: given[key] for key in given if key != "type"}}
    try:
        check_format(given)
        SCHEMA.check(given)
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
    return given


def offers_tools(tool_choice: object) -> bool:
    """Whether the client's tools may be called. Raises UnsupportedParameter for a choice that forces a call."""
    if tool_choice is None or tool_choice == "auto":
        return True
    if tool_choice == "none":
        return False
    raise UnsupportedParameter("tool_choice", "an agent chooses its tools itself; use 'auto' or 'none'")
