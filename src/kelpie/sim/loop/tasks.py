"""Tasks, futures and handles with sequence numbers.

asyncio, anyio and TaskGroup keep tasks in sets; an address as hash would make their order another one in every process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import CoroutineType
from typing import Any, TypeVar, cast

from kelpie.sim.loop.node import Node

T = TypeVar("T")


class SimTask(asyncio.Task[T]):
    """A task known by its number."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: asyncio.AbstractEventLoop,
        seq: int,
        label: str,
        node: Node | None,
        context: Context,
    ) -> None:
        self.node = node
        self.seq = seq  # before the base's __init__, which puts the task into a set
        self.label = label
        super().__init__(coro, loop=loop, name=label, context=context)

    def __hash__(self) -> int:
        return self.seq


class SimFuture(asyncio.Future[T]):
    """A future known by its number."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, seq: int) -> None:
        self.seq = seq
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.seq


class SimHandle(asyncio.Handle):
    """A callback that is ready."""

    __slots__ = ("born", "label")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
        born: int,
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.label = label_of(callback)
        self.born = born  # the number of picks made before, to notice starvation


class SimTimer(asyncio.TimerHandle):
    """A callback that is ready when its time has come."""

    __slots__ = ("born", "label")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.label = label_of(callback)
        self.born = 0


def label_of(callback: Callable[..., object]) -> str:
    """The label of a callback in the trace: the name of its task, or of its function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, SimTask):
        return cast("SimTask[Any]", owner).label
    name = getattr(callback, "__qualname__", None)
    if name is None:
        inner = getattr(callback, "func", None)  # functools.partial
        return label_of(inner) if inner is not None else type(callback).__name__
    return name


def position_of(task: asyncio.Task[Any]) -> str:
    """The position of a pending task, for a person to read."""
    coro: Any = task.get_coro()
    place = "not started"
    for _ in range(100):
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None) or getattr(coro, "ag_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} {frame.f_code.co_name}"
        inner = getattr(coro, "cr_await", None)
        inner = inner if inner is not None else getattr(coro, "gi_yieldfrom", None)
        if inner is None:
            break
        coro = inner
    return f"{task.get_name()} at {place}"


def coroutine_name(coro: Coroutine[Any, Any, Any]) -> str:
    return coro.__qualname__ if isinstance(coro, CoroutineType) else type(coro).__name__
