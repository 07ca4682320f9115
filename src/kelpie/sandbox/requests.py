"""What is asked of the runners inside a cell and what they answer: JSON both ways. Pure.

Python and Node (`world/cell/`) take the same request:
    source        the whole text of the tool
    function      its function that is called; null: the source only runs
    arguments     an object; Python gets them by name, Node by place, in the order of `order`
    order         names of the parameters, as the tool's schema has them
    agent_state   the agent as JSON; given to a function that has a parameter of this name
    paths         directories in the cell to look for packages in
    typescript    (Node) whether types must be taken out first
    check         (Node) whether the source is only looked at, for errors in its syntax
The answer is {"ok": true, "value": JSON, "text": str} or {"ok": false, "error": "ValueError: what", "traceback": str}.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Answer:
    """What the foreign code gave: `value` is JSON, `text` is how its language writes it, or what went wrong."""

    ok: bool
    text: str
    value: Any = None
    traceback: str = ""


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


def read_answer(result: bytes) -> Answer | None:
    """What a runner answered; None when foreign code wrote in its place and nothing can be made of it."""
    try:
        found: Any = json.loads(result)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    said = cast("dict[str, Any]", found)
    ok, text = said.get("ok"), said.get("text" if said.get("ok") else "error")
    if not isinstance(ok, bool) or not isinstance(text, str):
        return None
    way = said.get("traceback")
    return Answer(ok, text, said.get("value"), way if isinstance(way, str) else "")
