"""Requests to the runners inside a cell, and their answers: JSON both ways. Pure.

Python and Node (`world/cell_programs/`) take the same request:
    source        the whole text of the tool
    function      the function to call; null: the source only runs
    arguments     an object; Python gets them by name, Node by place, in the order of `order`
    order         names of the parameters, as the tool's schema has them
    agent_state   the agent as JSON; given to a function that has a parameter of this name
    paths         directories in the cell to look for packages in
    typescript    (Node) true if types must be stripped first
    check         (Node) true to check the syntax of the source only
The answer is {"ok": true, "text": str, "value": JSON} or {"ok": false, "error": "ValueError: what", "traceback": str},
in this order: foreign code may write in the runner's place, and a value that is not needed is not even parsed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

VALUE_CHARS_MAX = 256 * 1024  # of JSON; more is read as text alone, as small values can make much of a few characters
_BEGINNING = re.compile(r'\{"ok": ?(?:true, ?"text"|false, ?"error"): ?"')
_DECODER = json.JSONDecoder()
_VALUE = re.compile(r', ?"value": ?')
_TRACEBACK = re.compile(r', ?"traceback": ?"')


@dataclass(frozen=True, slots=True)
class RunnerAnswer:
    """Result of the foreign code: `written` is JSON, `text` is the value as its language prints it, or the error."""

    ok: bool
    text: str
    written: str = ""
    traceback: str = ""

    @property
    def value(self) -> Any:
        """The value of the JSON; the text where the JSON is too large or missing."""
        if len(self.written) > VALUE_CHARS_MAX:
            return self.text
        try:
            return orjson.loads(self.written)
        except orjson.JSONDecodeError:
            return self.text


def function_call(
    source: str,
    function: str | None,
    arguments: Mapping[str, Any],
    *,
    order: Sequence[str] = (),
    agent_state: Mapping[str, Any] | None = None,
    paths: Sequence[str] = (),
    typescript: bool = False,
    check: bool = False,
) -> bytes:
    """The request of a job that calls a function."""
    request = {
        "source": source,
        "function": function,
        "arguments": dict(arguments),
        "order": list(order),
        "agent_state": agent_state,
        "paths": list(paths),
        "typescript": typescript,
        "check": check,
    }
    return json.dumps(request).encode()


def read_answer(result: bytes) -> RunnerAnswer | None:
    """A runner's answer; None when foreign code wrote in its place and it cannot be parsed."""
    try:
        said = result.decode()
        if (beginning := _BEGINNING.match(said)) is None:
            return None
        ok = "true" in beginning[0]
        text, at = _string(said, beginning.end())
        going_on = (_VALUE if ok else _TRACEBACK).match(said, at)
        if going_on is None or not said.endswith("}"):
            return None
        if ok:
            return RunnerAnswer(True, _sound(text), written=said[going_on.end() : -1])
        return RunnerAnswer(False, _sound(text), traceback=_sound(_string(said, going_on.end())[0]))
    except ValueError:
        return None


def _string(said: str, at: int) -> tuple[str, int]:
    """The string whose opening quote is before this position, and its end. Raises ValueError."""
    found, end = _DECODER.raw_decode(said, at - 1)
    return str(found), end


def _sound(text: str) -> str:
    """The text without lone surrogates, which cannot be stored, and without NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
