"""Runs code that finds its agent's tools as functions, inside a cell that has a way back to our API.

It runs with the standard library alone and is never imported by the server. A call of a tool is a request to the
server, which decides about it as about any other call; names and arguments travel as JSON.
"""

import json
import os
import sys
import urllib.error
import urllib.request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CALL_S = 600.0


class ToolFailed(RuntimeError):
    """A tool that was called said that it failed; the text is what it said."""


def perform(code: str, tools: "list[dict[str, Any]]") -> None:
    """Runs the code. `tools` have `name` and `parameters`, the names of their parameters in order."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    names = module.__dict__
    names.update({tool["name"]: _function(tool["name"], tool["parameters"]) for tool in tools})
    names["ToolFailed"] = ToolFailed
    exec(compile(code, "main.py", "exec", dont_inherit=True), names)


def _function(name: str, parameters: "list[str]") -> "Any":
    def tool(*positional: "Any", **named: "Any") -> "Any":
        if len(positional) > len(parameters):
            raise TypeError(f"{name}() takes {len(parameters)} arguments, and {len(positional)} were given")
        arguments = dict(zip(parameters, positional, strict=False))
        if twice := sorted(arguments.keys() & named.keys()):
            raise TypeError(f"{name}() got '{twice[0]}' twice")
        return _called(name, {**arguments, **named})

    tool.__name__ = tool.__qualname__ = name
    return tool


def _called(name: str, arguments: "dict[str, Any]") -> "Any":
    base, agent = os.environ["LETTA_BASE_URL"], os.environ["LETTA_AGENT_ID"]
    asked = urllib.request.Request(
        f"{base}/v1/agents/{agent}/tools/{name}/run",
        data=json.dumps({"args": arguments}).encode(),
        headers={"Authorization": f"Bearer {os.environ['LETTA_API_KEY']}", "Content-Type": "application/json"},
    )
    open_directly = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    try:
        with open_directly(asked, timeout=CALL_S) as answer:
            told: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ToolFailed(f"{name}: {_words(error)}") from None
    if told.get("status") != "success":
        said = told.get("stderr") or [told.get("func_return") or "it failed"]
        raise ToolFailed(f"{name}: {said[-1]}")
    return told.get("func_return")


def _words(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code}"
