"""Scripted lines for the demo model, so that tests can decide its answers.

A provider can be made with a script; or a user message that begins with `!script ` carries one as a JSON list, of which
one line is said per step of that turn:
`!script [{"calls": [{"name": "roll", "arguments": {"sides": 6}}]}, {"text": "Done."}]`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from kelpie.core.errors import ModelError, ModelFault
from kelpie.llm.provider.interface import Request

MARK = "!script "
LINES_MAX = 200
WAIT_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make; arguments may be broken JSON text on purpose."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Line:
    """One reply of the demo model: its thoughts, text and calls, or its failure."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    error: ModelError | None = None  # raised after the text was streamed
    finish_reason: str | None = None
    wait_s: float = 0.0


Script = Sequence[Line] | Callable[[Request], Line]


def read_script(text: str, step: int) -> Line:
    """The line for this step (from 0) of a script in a message; a broken script is reported in the answer."""
    try:
        lines = orjson.loads(text.removeprefix(MARK))
    except orjson.JSONDecodeError as error:
        return Line(f"This script is not JSON: {error}.")
    if not isinstance(lines, list) or len(lines) > LINES_MAX:
        return Line(f"A script is a JSON list of at most {LINES_MAX} replies.")
    if step >= len(lines):
        return Line("The script has no more replies.")
    try:
        return read_line(lines[step])
    except ValueError as error:
        return Line(f"Reply {step} of this script cannot be used: {error}.")


def read_line(given: object) -> Line:
    """A line from its JSON form. Raises ValueError with the reason."""
    if not isinstance(given, dict):
        raise ValueError("it is not an object")
    unknown = sorted(given.keys() - {"text", "calls", "reasoning", "error", "finish_reason", "wait_s"})
    if unknown:
        raise ValueError(f"it has unknown fields: {', '.join(unknown)}")
    return Line(
        text=str(given.get("text") or ""),
        calls=tuple(map(_call, given.get("calls") or ())),
        reasoning=str(given.get("reasoning") or ""),
        error=_error(given["error"]) if given.get("error") else None,
        finish_reason=given.get("finish_reason"),
        wait_s=min(float(given.get("wait_s") or 0), WAIT_S_MAX),
    )


def _call(given: object) -> Call:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError("a call needs a name")
    arguments = given.get("arguments") or {}
    if not isinstance(arguments, dict | str):
        raise ValueError("the arguments of a call are an object, or text")
    return Call(given["name"], arguments)


def _error(kind: object) -> ModelError:
    """A failure by the name of its kind, such as "llm_rate_limit"."""
    try:
        return ModelError(ModelFault(str(kind)), f"The script asked for the failure {kind}.", detail="scripted")
    except ValueError:
        raise ValueError(f"there is no failure named {kind}; use {', '.join(ModelFault)}") from None
