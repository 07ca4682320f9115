"""The life of an agent's activation: a closed set of states and the only moves between them.

`Lifecycle.move` is the one place where a state changes; a move that is not in the table raises at once.
Every move is a `Transition`, which is what observers get.
"""

from dataclasses import dataclass
from enum import StrEnum

from kelpie.core.errors import InvariantBroken
from kelpie.core.time import Micros


class State(StrEnum):
    unloaded = "unloaded"
    loading = "loading"
    loaded = "loaded"
    running = "running"
    stopping = "stopping"
    stopped = "stopped"
    failed = "failed"


MOVES: dict[State, frozenset[State]] = {
    State.unloaded: frozenset({State.loading, State.stopped}),
    State.loading: frozenset({State.loaded, State.failed, State.stopping}),
    State.loaded: frozenset({State.running, State.stopping, State.failed}),
    State.running: frozenset({State.loaded, State.stopping, State.failed}),
    State.stopping: frozenset({State.stopped, State.unloaded, State.failed}),
    State.stopped: frozenset({State.unloaded}),
    State.failed: frozenset({State.loading, State.stopping, State.unloaded, State.stopped}),
}


@dataclass(frozen=True, slots=True)
class Transition:
    """One move of one activation. `reason` is the error text for a move to `failed`, else why it happened."""

    key: str
    before: State
    after: State
    at: Micros
    reason: str = ""


class Lifecycle:
    """The current state of one activation and the way it may change."""

    __slots__ = ("key", "state")

    def __init__(self, key: str, state: State = State.unloaded) -> None:
        self.key = key
        self.state = state

    def move(self, after: State, at: Micros, reason: str = "") -> Transition:
        """Changes the state. Raises InvariantBroken for a move that is not in MOVES."""
        if after not in MOVES[self.state]:
            raise InvariantBroken(f"{self.key}: illegal move {self.state} -> {after}")
        transition = Transition(self.key, self.state, after, at, reason)
        self.state = after
        return transition
