"""What the Python runner does with a request, inside a cell: it runs a source and calls one function of it.

It runs beside foreign code and is believed by nobody; it imports the standard library only. The request is data:
arguments are values given to a function, never text put into code. See `sandbox/requests.py` for both forms.
"""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import inspect
import linecache
import os
import sys
import traceback
import types
import typing
import uuid
from typing import Any

DEPTH_MAX = 64
MODULE = "tool"


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Carries a request out; whatever the foreign code raises is its result."""
    sys.path[:0] = request.get("paths") or []
    filename = f"{request.get('function') or MODULE}.py"
    source: str = request["source"]
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    try:
        value = _called(request, source, filename)
        plain = _plain(value, 0)
        text = value if isinstance(value, str) else str(value)
        return {"ok": True, "value": plain, "text": _sound(text)}
    except BaseException as error:  # noqa: BLE001  whatever foreign code raises, also an exit
        return {"ok": False, "error": _sound(_told(error, filename))}


def _called(request: dict[str, Any], source: str, filename: str) -> Any:
    module = types.ModuleType(request.get("module") or MODULE)
    sys.modules[module.__name__] = module
    names = module.__dict__
    names["AgentState"] = Record
    if "LETTA_BASE_URL" in os.environ:
        names["client"] = Client()
    exec(compile(source, filename, "exec", dont_inherit=True), names)
    function = request.get("function")
    if function is None:
        return None
    tool = names.get(function) or _only(names, module.__name__)
    if not callable(tool):
        raise NameError(f"the source defines no function '{function}'")
    result: Any = tool(**_arguments(tool, request))
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _only(names: dict[str, Any], module: str) -> Any:
    """The tool of a source whose schema calls it otherwise: its last function that is not hidden."""
    own = [one for one in names.values() if inspect.isfunction(one) and one.__module__ == module]
    return next((one for one in reversed(own) if not one.__name__.startswith("_")), None)


# --- what goes in ---------------------------------------------------------------------------------------------------


def _arguments(tool: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the function's own types, where it has any; the state of the agent where it asks for it."""
    given: dict[str, Any] = dict(request.get("arguments") or {})
    try:
        wanted = typing.get_type_hints(tool)
    except Exception:  # noqa: BLE001  a name in an annotation that means nothing here: the values stay as they are
        wanted = dict[str, Any]()
    fitted = {name: _fitted(wanted.get(name), value) for name, value in given.items()}
    if "agent_state" in inspect.signature(tool).parameters:
        state = request.get("agent_state")
        fitted["agent_state"] = None if state is None else Record(state)
    return fitted


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
    reader = enum.Enum if issubclass(kind, enum.Enum) else _READERS.get((kind, given))
    if reader is None:
        return value
    return kind(value) if reader is enum.Enum else reader(value)


_READERS: dict[Any, Any] = {  # by the class wanted and the class that JSON gave
    (set, list): set,
    (frozenset, list): frozenset,
    (tuple, list): tuple,
    (float, int): float,
    (int, str): int,  # a key of an object
    (datetime.datetime, str): datetime.datetime.fromisoformat,
    (datetime.date, str): datetime.date.fromisoformat,
    (datetime.time, str): datetime.time.fromisoformat,
    (uuid.UUID, str): uuid.UUID,
    (decimal.Decimal, str): decimal.Decimal,
    (decimal.Decimal, int): decimal.Decimal,
    (decimal.Decimal, float): decimal.Decimal,
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
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _plain(dataclasses.asdict(value), depth + 1)
        case _:
            return _sound(str(value))


def _sound(text: str) -> str:
    """The text without halves of characters, which no reader of JSON takes."""
    return text.encode("utf-8", "replace").decode()


def _told(error: BaseException, filename: str) -> str:
    """What went wrong in one line; the way there, from the tool's first line on, goes to standard error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((at for at, frame in enumerate(frames) if frame.filename == filename), len(frames))
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[own:])]
    last = traceback.format_exception_only(type(error), error)
    sys.stderr.write("".join([*(lines if own < len(frames) else ()), *last]))
    sys.stderr.flush()
    return last[-1].strip()
