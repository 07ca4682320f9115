"""Runs Python in a cell: a function with arguments, or a script.

Source and arguments come as JSON and stay data; the source is compiled, nothing is pasted into it. The result of a
function goes back as JSON; what is not JSON goes as its text. It is never imported by the server.
"""

import json
import os
import sys
from importlib import import_module

FILE = "tool.py"
# What most tools need sooner or later; a cell that waits for its order has the time.
USUAL = ("traceback", "typing", "datetime", "inspect", "random", "urllib.parse", "dataclasses", "pathlib", "asyncio")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


def prepare(wanted: "Callable[[], bool]") -> None:
    """Imports what is usual while nobody wants anything."""
    for name in USUAL:
        if wanted():
            return
        import_module(name)


def run(request: bytes, reply: "Callable[[bytes], None]") -> None:
    """Runs what the request says. A script ends this process as Python would; a function's result is replied."""
    told: dict[str, Any] = json.loads(request)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.argv = [FILE]
    source: str = told["source"]
    function: str | None = told.get("function")
    if function is None:
        sys.excepthook = lambda _kind, error, _frames: print(_trace(error), end="", file=sys.stderr)
        exec(compile(source, FILE, "exec"), _module("__main__", source).__dict__)
        return
    answer = _answer(source, function, told)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reply(answer)


def _answer(source: str, function: str, told: "dict[str, Any]") -> bytes:
    try:
        module = _module("tool", source)
        exec(compile(source, FILE, "exec"), module.__dict__)
        value = _called(getattr(module, function), told)
        return _json({"ok": True, "value": value})
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        return _json({"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": _trace(error)})


def _called(function: "Callable[..., Any]", told: "dict[str, Any]") -> "Any":
    arguments: dict[str, Any] = dict(told.get("arguments") or {})
    if "agent_state" in _parameters(function):
        arguments["agent_state"] = told.get("agent_state")
    value = function(**arguments)
    return import_module("asyncio").run(_awaited(value)) if hasattr(value, "__await__") else value


def _parameters(function: "Callable[..., Any]") -> tuple[str, ...]:
    """Names; `inspect` would take longer to import than most tools take to run."""
    while hasattr(function, "__wrapped__"):
        function = function.__dict__["__wrapped__"]
    code = getattr(function, "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


async def _awaited(value: "Any") -> "Any":
    return await value


def _module(name: str, source: str) -> "ModuleType":
    module = type(sys)(name)
    module.__dict__["__file__"] = FILE
    # Where tracebacks and `inspect` look for lines of a file that is none.
    module.__dict__["__loader__"] = _Source(source)
    module.__dict__["__spec__"] = None
    sys.modules[name] = module
    return module


class _Source:
    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, _name: str) -> str:
        return self._source


def _json(answer: "dict[str, Any]") -> bytes:
    try:
        return json.dumps(answer, allow_nan=False, default=str).encode()
    except (TypeError, ValueError, RecursionError):
        return json.dumps({**answer, "value": str(answer["value"])}).encode()


def _trace(error: BaseException) -> str:
    """The frames of the tool alone."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != FILE:
        frames = frames.tb_next
    return "".join(import_module("traceback").format_exception(type(error), error, frames))
