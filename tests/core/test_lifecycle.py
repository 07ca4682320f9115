"""The table of lifecycle moves is the law: what is in it works, everything else raises and changes nothing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.agents.activation_state import MOVES, ActivationState, Lifecycle, StateTransition
from kelpie.core.errors import InvariantBroken

ALLOWED = {
    (ActivationState.unloaded, ActivationState.loading),
    (ActivationState.unloaded, ActivationState.stopped),
    (ActivationState.loading, ActivationState.loaded),
    (ActivationState.loading, ActivationState.failed),
    (ActivationState.loading, ActivationState.stopping),
    (ActivationState.loaded, ActivationState.running),
    (ActivationState.loaded, ActivationState.stopping),
    (ActivationState.loaded, ActivationState.failed),
    (ActivationState.running, ActivationState.loaded),
    (ActivationState.running, ActivationState.stopping),
    (ActivationState.running, ActivationState.failed),
    (ActivationState.stopping, ActivationState.stopped),
    (ActivationState.stopping, ActivationState.unloaded),
    (ActivationState.stopping, ActivationState.failed),
    (ActivationState.stopped, ActivationState.unloaded),
    (ActivationState.failed, ActivationState.loading),
    (ActivationState.failed, ActivationState.stopping),
    (ActivationState.failed, ActivationState.unloaded),
    (ActivationState.failed, ActivationState.stopped),
}
PAIRS = list(itertools.product(ActivationState, ActivationState))


def test_a_new_lifecycle_is_unloaded() -> None:
    assert Lifecycle("a").state is ActivationState.unloaded


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair in ALLOWED])
def test_an_allowed_move_changes_the_state_and_tells_it(before: ActivationState, after: ActivationState) -> None:
    life = Lifecycle("a", before)
    assert life.move(after, 1234, "because") == StateTransition("a", before, after, 1234, "because")
    assert life.state is after


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in ALLOWED])
def test_any_other_move_raises_and_changes_nothing(before: ActivationState, after: ActivationState) -> None:
    life = Lifecycle("a", before)
    with pytest.raises(InvariantBroken, match=f"a: illegal move {before} -> {after}"):
        life.move(after, 1234)
    assert life.state is before


def test_the_table_knows_every_state() -> None:
    assert set(MOVES) == set(ActivationState)


def test_every_state_can_be_reached_and_left_again() -> None:
    reached = {ActivationState.unloaded}
    for _ in ActivationState:
        reached |= {after for before in reached for after in MOVES[before]}
    assert reached == set(ActivationState)
    homeward = {ActivationState.unloaded}
    for _ in ActivationState:
        homeward |= {before for before in ActivationState if MOVES[before] & homeward}
    assert homeward == set(ActivationState), "no state is a trap"


@given(st.lists(st.sampled_from(ActivationState)))
def test_whatever_is_tried_the_transitions_told_form_a_chain(wishes: list[ActivationState]) -> None:
    life = Lifecycle("a")
    told: list[StateTransition] = []
    for at, wish in enumerate(wishes):
        try:
            told.append(life.move(wish, at))
        except InvariantBroken:
            continue
    states = [ActivationState.unloaded, *(transition.after for transition in told)]
    assert [transition.before for transition in told] == states[:-1]
    assert life.state is states[-1]
