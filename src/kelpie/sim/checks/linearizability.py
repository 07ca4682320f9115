"""Linearizability check: finds one order of the operations that explains what every client saw, with the search of Wing
and Gong, per key.

An operation takes effect at one moment between its call and its return. One whose outcome is unknown may take effect at
any moment after its call, or never. Visited (done, state) pairs are remembered, after Lowe, or it would not end.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from kelpie.sim.loop.errors import Broken, OutOfBounds

VISITS_MAX = 500_000


class _Unknown:
    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client and its result. `returned_s` is None, and `result` UNKNOWN, when no answer came."""

    key: str
    kind: str
    value: Any
    result: Any
    called_s: float
    returned_s: float | None


class Model(Protocol):
    """The expected effect of operations on one key. States are hashable and never changed in place."""

    initial: Hashable

    def fitted(self, operations: Sequence[Operation]) -> "Model":
        """This model, knowing the results to come; it may refuse at once what no later result allows."""
        ...

    def step(self, state: Any, operation: Operation) -> tuple[bool, Hashable]:
        """True if the operation could have had its result in this state, and the state after it."""
        ...


class Register:
    """`read`, `write` and `swap` (compare and set: value is (expected, new), result is whether it was set)."""

    initial: Hashable = None

    def fitted(self, operations: Sequence[Operation]) -> "Register":
        return self

    def step(self, state: Any, operation: Operation) -> tuple[bool, Hashable]:
        unknown = operation.result is UNKNOWN
        match operation.kind:
            case "write":
                return True, operation.value
            case "swap":
                expected, new = operation.value
                fits = state == expected
                return unknown or operation.result == fits, new if fits else state
            case _:
                return unknown or operation.result == state, state


class Log:
    """`append` of a value, and `read` of everything so far as a tuple.

    A log only grows, so at every moment it is a prefix of what the longest read saw, or extends it.
    """

    initial: Hashable = ()

    def __init__(self, longest: tuple[Any, ...] = ()) -> None:
        self._longest = longest

    def fitted(self, operations: Sequence[Operation]) -> "Log":
        reads = [each.result for each in operations if each.kind == "read" and each.result is not UNKNOWN]
        return Log(tuple(max(reads, key=len, default=())))

    def step(self, state: Any, operation: Operation) -> tuple[bool, Hashable]:
        if operation.kind == "append":
            place = len(state)
            fits = place >= len(self._longest) or self._longest[place] == operation.value
            return fits, (*state, operation.value)
        return operation.result is UNKNOWN or tuple(operation.result) == state, state


def check(history: Iterable[Operation], model: Model) -> None:
    """Raises Broken naming the first key whose history has no explanation."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    for key, operations in by_key.items():
        if not linearizable(operations, model):
            seen = "; ".join(_text(operation) for operation in sorted(operations, key=lambda each: each.called_s))
            raise Broken("linearizable", f"no order explains the history of {key}: {seen}")


def linearizable(operations: Sequence[Operation], model: Model) -> bool:
    """True if some order explains the history of one key. Raises OutOfBounds when the search grows too large."""
    model = model.fitted(operations)
    known = sum(1 << index for index, each in enumerate(operations) if each.returned_s is not None)
    visited: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [(0, model.initial)]
    while waiting:
        done, state = waiting.pop()
        if done & known == known:
            return True
        if (done, state) in visited:
            continue
        visited.add((done, state))
        if len(visited) > VISITS_MAX:
            raise OutOfBounds(f"the history of {len(operations)} operations has too many orders to check")
        for index in _next(operations, done):
            fits, after = model.step(state, operations[index])
            if fits:
                waiting.append((done | 1 << index, after))
    return False


def _next(operations: Sequence[Operation], done: int) -> list[int]:
    """The operations that may come next: called before every one that is not done had returned.

    The likely first ones are last, where the search takes them from: the earliest return, and an unknown outcome only
    when nothing else explains what was seen.
    """
    left = [(_end(operations[index]), index) for index in range(len(operations)) if not done >> index & 1]
    left.sort(reverse=True)
    latest = left[-1][0] if left else inf
    return [index for _, index in left if operations[index].called_s <= latest]


def _end(operation: Operation) -> float:
    return inf if operation.returned_s is None else operation.returned_s


def _text(operation: Operation) -> str:
    end = "?" if operation.returned_s is None else f"{operation.returned_s:.6f}"
    return f"[{operation.called_s:.6f}..{end}] {operation.kind}({operation.value!r}) -> {operation.result!r}"
