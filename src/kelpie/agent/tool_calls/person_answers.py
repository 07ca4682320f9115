"""A person's answers to the questions of a tool: matched with them, and checked against their schemas. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from kelpie.agent.prompt.rendering import read_object
from kelpie.core.conversations.questions import ToolQuestions
from kelpie.core.errors import ToolError
from kelpie.tools.calls.argument_check import check_arguments


def with_answers(asked: ToolQuestions, given: str | None) -> ToolQuestions:
    """The questions with the answers in a JSON object: by the keys of the questions, or those to the only question
    directly. Raises ToolError that names what is missing or wrong."""
    said = {} if given is None else read_object(given)
    if said is None:
        raise ToolError("The answers are not a JSON object.")
    keys = asked.open
    by_key: Mapping[str, Any] = {keys[0]: said} if len(keys) == 1 and set(said) != set(keys) else said
    answers = {key: _checked(asked, key, by_key.get(key, {})) for key in keys}
    if unknown := sorted(set(by_key) - set(keys)):
        raise ToolError(f"There is no question {', '.join(unknown)[:200]}; the questions are {', '.join(keys)}.")
    return replace(asked, answers={**asked.answers, **answers})


def _checked(asked: ToolQuestions, key: str, answer: Any) -> dict[str, Any]:
    question = asked.questions[key]
    if not isinstance(answer, Mapping):
        raise ToolError(f"The answer to {key} must be an object.")
    if question.url is not None:
        return {}
    schema = question.schema or {}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    filled: dict[str, Any] = {}
    for name, each in properties.items():
        if isinstance(each, Mapping) and "default" in each:
            filled[name] = each["default"]
    filled.update(cast("Mapping[str, Any]", answer))
    return check_arguments({"parameters": schema}, filled)
