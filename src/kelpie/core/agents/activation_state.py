"""States of an agent's activation: a closed set, and the only moves between them.

`Lifecycle.move` is the one function that changes a state; a move that is not in the table raises at once. Every move is
a `StateTransition`, which observers receive.
"""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.errors import InvariantBroken
from kelpie.core.time import Micros


class ActivationState(StrEnum):
    unloaded = "unloaded"
    loading = "loading"
    loaded = "loaded"
    running = "running"
    stopping = "stopping"
    stopped = "stopped"
    failed = "failed"


MOVES: dict[ActivationState, frozenset[ActivationState]] = {
    ActivationState.unloaded: frozenset({ActivationState.loading, ActivationState.stopped}),
    ActivationState.loading: frozenset({ActivationState.loaded, ActivationState.failed, ActivationState.stopping}),
    ActivationState.loaded: frozenset({ActivationState.running, ActivationState.stopping, ActivationState.failed}),
    ActivationState.running: frozenset({ActivationState.loaded, ActivationState.stopping, ActivationState.failed}),
    ActivationState.stopping: frozenset({ActivationState.stopped, ActivationState.unloaded, ActivationState.failed}),
    ActivationState.stopped: frozenset({ActivationState.unloaded}),
    ActivationState.failed: frozenset(
        {ActivationState.loading, ActivationState.stopping, ActivationState.unloaded, ActivationState.stopped}
    ),
}


@dataclass(frozen=True, slots=True)
class StateTransition:
    """One move of one activation. `reason` is the error text for a move to `failed`, else the cause of the move."""

    key: str
    before: ActivationState
    after: ActivationState
    at: Micros
    reason: str = ""


class Lifecycle:
    """The current state of one activation, and the moves it may make."""

    __slots__ = ("key", "state")

    def __init__(self, key: str, state: ActivationState = ActivationState.unloaded) -> None:
        self.key = key
        self.state = state

    def move(self, after: ActivationState, at: Micros, reason: str = "") -> StateTransition:
        """Changes the state. Raises InvariantBroken for a move that is not in MOVES."""
        if after not in MOVES[self.state]:
            raise InvariantBroken(f"{self.key}: illegal move {self.state} -> {after}")
        transition = StateTransition(self.key, self.state, after, at, reason)
        self.state = after
        return transition
