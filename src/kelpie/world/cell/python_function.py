"""Calls a function of a source, in a cell: values of JSON become its arguments, and what it returns becomes JSON again.

It runs beside foreign code and is believed by nobody. Arguments are values given to a function, never text put into
code. Nothing is imported before it is needed, because most tools need little; `sandbox/requests.py` has the forms.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import dataclasses
    import enum
    import inspect
    import traceback
    import types
    import typing
    from typing import Any
else:

    class _Late:
        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(import_module(self._name), attribute)

    asyncio, dataclasses, enum, inspect = map(_Late, ("asyncio", "dataclasses", "enum", "inspect"))
    traceback, types, typing = map(_Late, ("traceback", "types", "typing"))

DEPTH_MAX = 64
FILE = "tool.py"
PLAIN = frozenset({str, int, bool, list, dict, "str", "int", "bool", "list", "dict"})  # as JSON gives them


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Calls the function that the request names; whatever foreign code raises is its result."""
    sys.path[:0] = request.get("paths") or []
    try:
        value = _called(request)
        text = value if isinstance(value, str) else str(value)
        return {"ok": True, "text": _sound(text), "value": _plain(value, 0)}
    except BaseException as error:  # noqa: BLE001  whatever foreign code raises, also an exit
        told = traceback.format_exception_only(type(error), error)[-1].strip()
        return {"ok": False, "error": _sound(told), "traceback": _sound(trace(error))}


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


# --- what goes in ---------------------------------------------------------------------------------------------------


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
    return given | {name: _fitted(wanted.get(name), given[name]) for name in typed}


def _is_plain(kind: Any) -> bool:
    return kind is None or (isinstance(kind, type | str) and kind in PLAIN)


def _parameters(function: Any) -> tuple[str, ...]:
    """Names; `inspect` would take longer to import than most tools take to run."""
    while hasattr(function, "__wrapped__"):
        function = function.__dict__["__wrapped__"]
    code = getattr(function, "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


def _fitted(kind: Any, value: Any) -> Any:
    """A JSON value as the type that an annotation names; one that means nothing to us leaves it as it is."""
    origin, inner, given = typing.get_origin(kind), typing.get_args(kind), _class_of(value)
    if origin is typing.Annotated:
        return _fitted(inner[0], value)
    if origin in (typing.Union, types.UnionType):
        return _first_fit([one for one in inner if one is not type(None)], value)
    if origin in (list, tuple, set, frozenset) and given is list:
        return _items(origin, inner, value)
    if origin is dict and given is dict and len(inner) == 2:
        return _entries(inner, value)
    if not isinstance(kind, type):
        return value
    return _instance(kind, value)


def _class_of(value: Any) -> Any:
    return value.__class__


def _first_fit(kinds: list[Any], value: Any) -> Any:
    if value is None:
        return None
    for kind in kinds:
        try:
            fitted = _fitted(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
        if not isinstance(kind, type) or isinstance(fitted, kind):
            return fitted
    return value


def _entries(inner: tuple[Any, ...], value: dict[str, Any]) -> Any:
    made: dict[Any, Any] = {_fitted(inner[0], key): _fitted(inner[1], item) for key, item in value.items()}
    return made


def _items(origin: Any, inner: tuple[Any, ...], value: list[Any]) -> Any:
    kinds = [one for one in inner if one is not Ellipsis]
    if origin is not tuple or Ellipsis in inner or len(kinds) != len(value):
        kinds = (kinds[:1] or [None]) * len(value)
    fitted = [_fitted(kind, item) for kind, item in zip(kinds, value, strict=True)]
    return typing.cast("Any", origin)(fitted)


def _instance(kind: Any, value: Any) -> Any:
    """The value as an instance of a class. Raises what the class has against it."""
    given = _class_of(value)
    if given is dict and hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if given is dict and hasattr(kind, "__dataclass_fields__"):
        hints = typing.get_type_hints(kind)
        return kind(**{key: _fitted(hints.get(key), item) for key, item in value.items()})
    if issubclass(kind, enum.Enum):
        return kind(value)
    how = _READ.get((f"{kind.__module__}.{kind.__qualname__}", given.__name__))
    return value if how is None else getattr(kind, how)(value) if how else kind(value)


_READ: dict[tuple[str, str], str] = {  # the class wanted, the class that JSON gave, and what makes the one of the other
    ("builtins.set", "list"): "",
    ("builtins.frozenset", "list"): "",
    ("builtins.tuple", "list"): "",
    ("builtins.float", "int"): "",
    ("builtins.int", "str"): "",  # a key of an object
    ("datetime.datetime", "str"): "fromisoformat",
    ("datetime.date", "str"): "fromisoformat",
    ("datetime.time", "str"): "fromisoformat",
    ("uuid.UUID", "str"): "",
    ("decimal.Decimal", "str"): "",
    ("decimal.Decimal", "int"): "",
    ("decimal.Decimal", "float"): "",
}


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
    if isinstance(value, dict):
        return Record(typing.cast("dict[str, Any]", value))
    return [_record(item) for item in typing.cast("list[Any]", value)] if isinstance(value, list) else value


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


# --- what comes out -------------------------------------------------------------------------------------------------


def _plain(value: Any, depth: int) -> Any:
    """A value as JSON can hold it; what JSON has no form for is told as text."""
    if depth > DEPTH_MAX:
        raise ValueError(f"the result is nested more than {DEPTH_MAX} levels deep")
    match value:
        case None | bool():
            return value
        case enum.Enum():
            return _plain(value.value, depth + 1)
        case str():
            return _sound(str(value))
        case int():
            return int(value)
        case float():
            return value if value - value == 0 else str(value)
        case dict():
            entries = typing.cast("dict[Any, Any]", value)
            return {_sound(str(key)): _plain(item, depth + 1) for key, item in entries.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, depth + 1) for item in typing.cast("list[Any]", value)]
        case _ if hasattr(value, "model_dump"):
            return _plain(value.model_dump(mode="json"), depth + 1)
        case _ if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            return _plain(dataclasses.asdict(value), depth + 1)
        case _:
            return _sound(str(value))


def _sound(text: str) -> str:
    """The text without halves of characters, which no reader of JSON takes."""
    return text.encode("utf-8", "replace").decode()
