"""Calls a function of a source, in a cell: values of JSON become its arguments, and what it returns becomes JSON again.

It runs beside foreign code and is believed by nobody. Arguments are values given to a function, never text put into
code. Nothing is imported before it is needed, because most tools need little; `sandbox/requests.py` has the forms.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import inspect
    import traceback
    import types
    import typing
    from typing import Any

    from kelpie.world.cell_programs.python_values import fitted, plain, sound
else:
    from python_values import Late, fitted, plain, sound

    asyncio, inspect, traceback, types, typing = map(Late, ("asyncio", "inspect", "traceback", "types", "typing"))

FILE = "tool.py"
PLAIN = frozenset({str, int, bool, list, dict, "str", "int", "bool", "list", "dict"})  # as JSON gives them


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Calls the function that the request names; whatever foreign code raises is its result."""
    sys.path[:0] = request.get("paths") or []
    try:
        value = _called(request)
        text = value if isinstance(value, str) else str(value)
        return {"ok": True, "text": sound(text), "value": plain(value, 0)}
    except BaseException as error:  # noqa: BLE001  whatever foreign code raises, also an exit
        told = traceback.format_exception_only(type(error), error)[-1].strip()
        return {"ok": False, "error": sound(told), "traceback": sound(trace(error))}


def module_of(name: str, source: str) -> types.ModuleType:
    """A module that is not filled yet, and is known to whoever looks for its lines."""
    module = type(sys)(name)
    module.__dict__["__file__"] = FILE
    module.__dict__["__loader__"] = _Source(source)
    module.__dict__["__spec__"] = None
    sys.modules[name] = module
    if "LETTA_BASE_URL" in os.environ:
        module.__dict__["client"] = Client()
    return module


class _Source:
    """Where tracebacks and `inspect` look for lines of a file that is none."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, _name: str) -> str:
        return self._source


def trace(error: BaseException) -> str:
    """The way to an error, as far as it goes through the tool."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != FILE:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _called(request: dict[str, Any]) -> Any:
    source, function = request["source"], request["function"]
    module = module_of("tool", source)
    names = module.__dict__
    names["AgentState"] = Record
    exec(compile(source, FILE, "exec", dont_inherit=True), names)
    tool = names.get(function) or _only(names, module.__name__)
    if not callable(tool):
        raise NameError(f"the source defines no function '{function}'")
    result: Any = tool(**_arguments(tool, request))
    return asyncio.run(_awaited(result)) if hasattr(result, "__await__") else result


async def _awaited(value: Any) -> Any:
    return await value


def _only(names: dict[str, Any], module: str) -> Any:
    """The tool of a source whose schema calls it otherwise: its last function that is not hidden."""
    own = [one for one in names.values() if inspect.isfunction(one) and one.__module__ == module]
    return next((one for one in reversed(own) if not one.__name__.startswith("_")), None)


def _arguments(tool: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the function's own types, where it has any; the state of the agent where it asks for it."""
    given: dict[str, Any] = dict(request.get("arguments") or {})
    if "agent_state" in _parameters(tool):
        state = request.get("agent_state")
        given["agent_state"] = None if state is None else Record(state)
    annotated: dict[str, Any] = getattr(tool, "__annotations__", {})
    asked = request.get("arguments") or ()
    typed = [name for name, kind in annotated.items() if name in asked and not _is_plain(kind)]
    if not typed:
        return given
    try:
        wanted = typing.get_type_hints(tool, include_extras=True)
    except Exception:  # noqa: BLE001  a name in an annotation that means nothing here: the values stay as they are
        return given
    return given | {name: fitted(wanted.get(name), given[name]) for name in typed}


def _is_plain(kind: Any) -> bool:
    return kind is None or (isinstance(kind, type | str) and kind in PLAIN)


def _parameters(function: Any) -> tuple[str, ...]:
    """Names; `inspect` would take longer to import than most tools take to run."""
    while hasattr(function, "__wrapped__"):
        function = function.__dict__["__wrapped__"]
    code = getattr(function, "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


class Record:
    """A JSON object with its entries as attributes: what a tool sees as the state of its agent."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update({key: _record(value) for key, value in entries.items()})

    def __getitem__(self, key: str) -> Any:
        return self.__dict__[key]

    def __repr__(self) -> str:
        return repr(self.__dict__)

    def get_block(self, label: str) -> Any:
        """The block of this label, where the record is an agent's memory. Raises KeyError."""
        for block in self.__dict__.get("blocks") or ():
            if block.label == label:
                return block
        raise KeyError(f"the agent has no memory block '{label}'")

    def list_block_labels(self) -> list[str]:
        return [block.label for block in self.__dict__.get("blocks") or ()]


def _record(value: Any) -> Any:
    kind = value.__class__
    return Record(value) if kind is dict else [_record(item) for item in value] if kind is list else value


class Client:
    """Letta's client for the server that runs the tool, made when it is first used: importing it takes a while."""

    def __getattr__(self, name: str) -> Any:
        try:
            made: Any = __import__("letta_client").Letta(
                base_url=os.environ["LETTA_BASE_URL"], api_key=os.environ.get("LETTA_API_KEY")
            )
        except ImportError as error:
            raise RuntimeError("`client` needs the package letta-client; name it in pip_requirements") from error
        self.__dict__.update({each: getattr(made, each) for each in dir(made) if not each.startswith("_")})
        return getattr(made, name)
