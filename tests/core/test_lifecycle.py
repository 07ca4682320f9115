"""The table of lifecycle moves is the law: what is in it works, everything else raises and changes nothing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.agents.activation_state import MOVES, Lifecycle, State, Transition
from kelpie.core.errors import InvariantBroken

ALLOWED = {
    (State.unloaded, State.loading),
    (State.unloaded, State.stopped),
    (State.loading, State.loaded),
    (State.loading, State.failed),
    (State.loading, State.stopping),
    (State.loaded, State.running),
    (State.loaded, State.stopping),
    (State.loaded, State.failed),
    (State.running, State.loaded),
    (State.running, State.stopping),
    (State.running, State.failed),
    (State.stopping, State.stopped),
    (State.stopping, State.unloaded),
    (State.stopping, State.failed),
    (State.stopped, State.unloaded),
    (State.failed, State.loading),
    (State.failed, State.stopping),
    (State.failed, State.unloaded),
    (State.failed, State.stopped),
}
PAIRS = list(itertools.product(State, State))


def test_a_new_lifecycle_is_unloaded() -> None:
    assert Lifecycle("a").state is State.unloaded


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair in ALLOWED])
def test_an_allowed_move_changes_the_state_and_tells_it(before: State, after: State) -> None:
    life = Lifecycle("a", before)
    assert life.move(after, 1234, "because") == Transition("a", before, after, 1234, "because")
    assert life.state is after


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in ALLOWED])
def test_any_other_move_raises_and_changes_nothing(before: State, after: State) -> None:
    life = Lifecycle("a", before)
    with pytest.raises(InvariantBroken, match=f"a: illegal move {before} -> {after}"):
        life.move(after, 1234)
    assert life.state is before


def test_the_table_knows_every_state() -> None:
    assert set(MOVES) == set(State)


def test_every_state_can_be_reached_and_left_again() -> None:
    reached = {State.unloaded}
    for _ in State:
        reached |= {after for before in reached for after in MOVES[before]}
    assert reached == set(State)
    homeward = {State.unloaded}
    for _ in State:
        homeward |= {before for before in State if MOVES[before] & homeward}
    assert homeward == set(State), "no state is a trap"


@given(st.lists(st.sampled_from(State)))
def test_whatever_is_tried_the_transitions_told_form_a_chain(wishes: list[State]) -> None:
    life = Lifecycle("a")
    told: list[Transition] = []
    for at, wish in enumerate(wishes):
        try:
            told.append(life.move(wish, at))
        except InvariantBroken:
            continue
    states = [State.unloaded, *(transition.after for transition in told)]
    assert [transition.before for transition in told] == states[:-1]
    assert life.state is states[-1]
