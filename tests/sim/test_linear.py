"""The linearizability checker agrees with brute force on small histories, and is quick on larger ones."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kelpie.sim.checks.linearizability import UNKNOWN, Log, Model, Operation, Register, check, linearizable
from kelpie.sim.loop.errors import Broken


def brute_force(operations: Sequence[Operation], model: Model) -> bool:
    """Tries every order of every subset that leaves out only operations of unknown outcome."""
    known = [each for each in operations if each.returned_s is not None]
    unknown = [each for each in operations if each.returned_s is None]
    for count in range(len(unknown) + 1):
        for extra in itertools.combinations(unknown, count):
            if any(_explains(order, model) for order in itertools.permutations([*known, *extra])):
                return True
    return False


def _explains(order: Sequence[Operation], model: Model) -> bool:
    for earlier, later in itertools.combinations(order, 2):
        if later.returned_s is not None and later.returned_s < earlier.called_s:
            return False
    state = model.initial
    for operation in order:
        fits, state = model.step(state, operation)
        if not fits:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[Operation]:
    operations: list[Operation] = []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(kinds))
        called = draw(st.integers(0, 8))
        returned = draw(st.one_of(st.none(), st.integers(called, 10)))
        value: object = number
        result: object = None
        if kind == "swap":
            value = (draw(st.sampled_from([None, 0, 1])), number)
            result = draw(st.booleans())
        elif kind == "read" and "append" in kinds:
            result = draw(st.lists(st.integers(0, 3), max_size=3, unique=True))
        elif kind == "read":
            result = draw(st.sampled_from([None, 0, 1, 2]))
        if returned is None:
            result = UNKNOWN
        operations.append(Operation("k", kind, value, result, called, returned))
    return operations


@settings(max_examples=300, deadline=None)
@given(histories(("read", "write", "swap")))
def test_a_register_is_checked_as_brute_force_does(operations: list[Operation]) -> None:
    assert linearizable(operations, Register()) is brute_force(operations, Register())


@settings(max_examples=300, deadline=None)
@given(histories(("read", "append")))
def test_a_log_is_checked_as_brute_force_does(operations: list[Operation]) -> None:
    assert linearizable(operations, Log()) is brute_force(operations, Log())


def op(kind: str, value: object, result: object, called: float, returned: float | None, key: str = "k") -> Operation:
    return Operation(key, kind, value, result, called, returned)


def test_both_answers_occur() -> None:
    """Random histories could all be alike; these are not."""
    stale = [op("write", 1, None, 0, 1), op("read", None, None, 2, 3)]
    fresh = [op("write", 1, None, 0, 1), op("read", None, 1, 2, 3)]
    racing = [op("write", 1, None, 0, 5), op("read", None, None, 1, 2)]
    assert not linearizable(stale, Register())
    assert linearizable(fresh, Register())
    assert linearizable(racing, Register())


def test_an_unknown_write_may_come_late_or_never_but_not_go_back() -> None:
    lost = op("write", 1, UNKNOWN, 0, None)
    assert linearizable([lost, op("read", None, None, 5, 6), op("read", None, 1, 7, 8)], Register())
    assert linearizable([lost, op("read", None, None, 5, 6)], Register())
    assert not linearizable([lost, op("read", None, 1, 5, 6), op("read", None, None, 7, 8)], Register())


def test_keys_are_checked_apart_and_the_broken_one_is_named() -> None:
    history = [
        op("append", "x", None, 0, 1, key="good"),
        op("read", None, ["x"], 2, 3, key="good"),
        op("append", "y", None, 0, 1, key="bad"),
        op("read", None, [], 2, 3, key="bad"),
    ]
    check(history[:2], Log())
    with pytest.raises(Broken, match="history of bad"):
        check(history, Log())


def test_a_long_concurrent_history_is_checked_in_time() -> None:
    rng = random.Random(1)
    history: list[Operation] = []
    for number in range(300):
        history.append(op("append", number, None, number - rng.random() * 3, number + 0.5))
    history.append(op("read", None, [each.value for each in history], 1000, 1001))
    assert linearizable(history, Log())
